"""What every contender measures with. Standard library only: peers import it in their own environments.

A contender is a program: `python -m bench.<module> <part> --url .. --tasks ..`. It prints one JSON
object per figure on stdout, and says everything else on stderr.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

clock = time.perf_counter

BULK = 1000  # keys in one bulk call
CALLERS = 50  # concurrent callers of "W1 many" and "W3", where the contender runs on an event loop
WORKFLOWS, STEPS = 500, 10  # W4 500x10: so many workflows of so many steps, all started at once
LONG = 1000  # W4 1x1000: the steps of one workflow
TURN = 50  # transactions in a row, before those without a start have their turn
SAMPLE_EVERY = 0.05  # seconds between two looks at a drain: enough to time it, too few to slow it


class Arguments(argparse.Namespace):
    """What the harness tells a contender."""

    part: str
    url: str
    tasks: int
    samples: int
    rows: int
    seconds: float
    scratch: Path


def arguments() -> Arguments:
    parser = argparse.ArgumentParser()
    parser.add_argument("part")
    parser.add_argument("--url", required=True)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--scratch", type=Path, default=Path("bench/.scratch"))
    return parser.parse_args(namespace=Arguments())


def emit(work: str, value: float, unit: str, **settings: object) -> None:
    """Report one figure to the harness."""
    row = {"work": work, "value": round(value, 3), "unit": unit, "settings": settings}
    print(json.dumps(row), flush=True)


def emit_median(work: str, values: Sequence[float], unit: str, **settings: object) -> None:
    """Report a workload that is over too soon to be measured once."""
    emit(work, statistics.median(values), unit, repeats=len(values), **settings)


def emit_latency(seconds: Sequence[float], **settings: object) -> None:
    ms = [s * 1000 for s in seconds]
    emit("W5 p50", statistics.median(ms), "ms", n=len(ms), **settings)
    emit("W5 p99", quantile(ms, 0.99), "ms", n=len(ms), **settings)


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least `q` of all values do not exceed."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


class Stopwatch:
    def __enter__(self) -> "Stopwatch":
        self._began = clock()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = clock() - self._began


async def callers(count: int, concurrent: int, call: Callable[[int], Awaitable[object]]) -> float:
    """Calls per second of `count` calls, `concurrent` at a time, each awaited."""
    numbers = iter(range(count))

    async def caller() -> None:
        for i in numbers:
            await call(i)

    with Stopwatch() as watch:
        await asyncio.gather(*(caller() for _ in range(concurrent)))
    return count / watch.seconds


async def emit_transactions(
    work: str, count: int, bare: Callable[[int], Awaitable[object]], start: Callable[[int], Awaitable[object]]
) -> None:
    """Transactions per second with one insert of the caller's: without a start and with one, by turns."""
    spent = {"without": 0.0, "with": 0.0}
    await start(-1)  # prepares
    for begin in range(0, count, TURN):
        some = range(begin, min(begin + TURN, count))
        for name, call in (("without", bare), ("with", start)):
            with Stopwatch() as watch:
                for number in some:
                    await call(number)
            spent[name] += watch.seconds
    emit(f"{work}, without a start", count / spent["without"], "1/s", turn=TURN)
    emit(work, count / spent["with"], "1/s", turn=TURN)


class Drain:
    """Times a drain from the first look that finds something finished: a worker's start does not count."""

    def __init__(self, total: int, timeout: float = 120.0) -> None:
        self._total = total
        self._deadline = clock() + timeout
        self._first: tuple[float, int] | None = None
        self.rate = 0.0

    def over(self, left: int) -> bool:
        """Look at the number of unfinished tasks. True once there are none; then `rate` is known."""
        now = clock()
        if left == 0:
            if self._first is None:
                raise RuntimeError(f"{self._total} tasks were over before the first look: use more")
            began, then_left = self._first
            self.rate = then_left / (now - began)
            return True
        if self._first is None and left < self._total:
            self._first = (now, left)
        if now > self._deadline:
            raise TimeoutError(f"{left} of {self._total} tasks were still unfinished at the deadline")
        return False


def drain_rate(total: int, left: Callable[[], int], timeout: float = 120.0) -> float:
    """Tasks per second until `left()` is 0."""
    drain = Drain(total, timeout)
    while not drain.over(left()):
        time.sleep(SAMPLE_EVERY)
    return drain.rate


async def drain_rate_async(total: int, left: Callable[[], Awaitable[int]], timeout: float = 120.0) -> float:
    """`drain_rate` for a count that is awaited."""
    drain = Drain(total, timeout)
    while True:
        if drain.over(await left()):
            return drain.rate
        await asyncio.sleep(SAMPLE_EVERY)


async def until(over: Callable[[], Awaitable[bool]], timeout: float, every: float = SAMPLE_EVERY) -> None:
    """Look until it is so."""
    deadline = clock() + timeout
    while not await over():
        if clock() > deadline:
            raise TimeoutError(f"it was not over after {timeout:g} s")
        await asyncio.sleep(every)


@contextmanager
def process(command: Sequence[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child process for the length of the block; ended by its own id, with a bounded wait."""
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    try:
        yield child
    finally:
        stop(child)


def stop(child: subprocess.Popen[bytes], how: int = signal.SIGTERM, patience: float = 10.0) -> None:
    if child.poll() is None:
        child.send_signal(how)
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(patience)


def worker_of(module: str, args: Arguments) -> list[str]:
    """The command that runs `module` as a worker on the same database."""
    return [sys.executable, "-m", module, "worker", "--url", args.url, "--scratch", str(args.scratch)]


def resident_mb(pid: int) -> float:
    """Memory that a process occupies now (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} says nothing about its memory")


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used so far (Linux)."""
    # By thread and in nanoseconds: what `stat` counts in ticks misses a process that hardly ever runs.
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if not threads:
        raise RuntimeError(f"process {pid} says nothing about its processor time")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
