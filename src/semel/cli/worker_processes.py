"""Several worker processes under one parent, and how a process is asked to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

from semel.cli.command import Exit

log = logging.getLogger("semel.worker")

LAST_RESORT = 5.0
"""Seconds after the second signal, or after everything is done, before the process ends whatever hangs."""


class StopRequests:
    """Counts the requests to stop. Python's own handlers, not the loop's: they work while a task blocks the loop."""

    def __init__(self, on_more: Callable[[int], None] | None = None) -> None:
        self.requests = 0
        self._more = on_more
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = [asyncio.Event(), asyncio.Event()]

    def listen(self) -> None:
        """From now on SIGTERM and SIGINT are requests to stop."""
        signal.signal(signal.SIGTERM, self._heard)
        signal.signal(signal.SIGINT, self._heard)

    def end_with(self, stream: int) -> None:
        """Stop when the other end of this pipe is closed: then the parent is gone."""
        threading.Thread(target=self._watch, args=(stream,), name="semel-parent", daemon=True).start()

    def _watch(self, stream: int) -> None:
        while os.read(stream, 1024):
            pass
        self._request()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._request()

    def _request(self) -> None:
        self.requests += 1
        if self.requests == 2 and self._more is not None:
            self._more(self.requests)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for event in self._asked[: self.requests]:
            event.set()

    async def asked(self, times: int) -> None:
        """Wait for the first request to stop, or for the second."""
        self._loop = asyncio.get_running_loop()
        self._tell()
        await self._asked[times - 1].wait()


def end_within(seconds: float, code: int) -> None:
    """End this process after that time, even if a thread, an exit handler or the loop hangs."""

    def end() -> None:
        time.sleep(seconds)
        log.warning("something does not end; exiting without waiting for it")
        end_now(code)

    threading.Thread(target=end, name="semel-last-resort", daemon=True).start()


def end_now(code: int) -> None:
    """Exit at once, after flushing what has been written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


log = logging.getLogger("semel.worker")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""A child that lived this long and then dies begins again with the first pause."""


class WorkerProcesses:
    """A parent that keeps `semel worker` processes with these arguments running, and passes signals on.

    Each process has a session of its own, so that Ctrl-C reaches only the parent. It watches its stdin: if the parent
    dies, even by SIGKILL, the process finishes its work and ends.
    """

    def __init__(self, size: int, arguments: Sequence[str], metrics_port: int | None = None) -> None:
        self._size = size
        self._metrics_port = metrics_port
        """Of the first process; the others have those that follow."""
        self._command = [sys.executable, "-m", "semel", "worker", *arguments, "--tied"]
        self._children: set[asyncio.subprocess.Process] = set()
        self._asked = asyncio.Event()

    def run(self) -> Exit:
        """Run until all processes have ended. OK if each ended cleanly."""
        stopping = StopRequests()
        stopping.listen()
        return asyncio.run(self._run(stopping))

    async def _run(self, stopping: StopRequests) -> Exit:
        log.info("starting %s worker processes", self._size)
        relay = asyncio.create_task(self._relay(stopping))
        codes = await asyncio.gather(*(self._keep(number) for number in range(self._size)))
        relay.cancel()
        worst = max(codes)
        log.info("all worker processes have ended")
        return Exit(worst) if worst in set(Exit) else Exit.FAILED

    async def _relay(self, stopping: StopRequests) -> None:
        for times in (1, 2):
            await stopping.asked(times)
            self._stop()

    def _stop(self) -> None:
        self._asked.set()
        for child in self._children:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)

    async def _keep(self, number: int) -> int:
        """Start a process again whenever it dies unexpectedly, and return its last exit code."""
        deaths = 0
        while not self._asked.is_set():
            began = time.monotonic()
            code = await self._live(number)
            if self._asked.is_set():
                return Exit.OK if code == -signal.SIGTERM else abs(code)
            if code == Exit.OK:
                return Exit.OK  # someone stopped it by itself
            if code == Exit.USAGE:
                self._stop()  # it will not be better the next time
                return Exit.USAGE
            deaths = 0 if time.monotonic() - began > STEADY else deaths + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** max(0, deaths - 1))
            log.warning("a worker process died (%s); another starts in %.1f s", _cause(code), pause)
            await self._pause(pause)
        return Exit.OK

    async def _live(self, number: int) -> int:
        own = [] if self._metrics_port is None else [f"--metrics-port={self._metrics_port + number}"]
        child = await asyncio.create_subprocess_exec(
            *self._command, *own, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        self._children.add(child)
        if self._asked.is_set():
            child.send_signal(signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._children.discard(child)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()


def _cause(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
