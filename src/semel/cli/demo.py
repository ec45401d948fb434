"""`semel demo`: fifty requests for one payment, a worker killed in the middle of the charge, one charge."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from semel import App, ConfigError, EngineError, EngineUnavailable, Execution, Explanation, Handle, Status
from semel.cli.command import Debug, Exit, guarded
from semel.cli.demo_events import play_events
from semel.cli.demo_outage import play_outage
from semel.cli.demo_processes import LOG, DemoFailed, DemoProcesses
from semel.cli.demo_schedules import play_schedules
from semel.cli.demo_shop import (
    CENTS,
    DATABASE,
    KEY,
    LEDGER,
    ORDER,
    PORT_FILE,
    Entry,
    LedgerDamaged,
    pay,
    read_ledger,
)
from semel.cli.demo_shop import app as shop
from semel.cli.output import console

REQUESTS = 50
CUSTOMERS = 5
LEASE = "3s"
PROVIDER_TAKES = 2.0
LONGEST = 60.0

LOCK = "lock"
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LEDGER, PORT_FILE, f"{PORT_FILE}.new", LOG)


class Which(StrEnum):
    """What a demo can be about."""

    SCHEDULES = "schedules"
    EVENTS = "events"
    OUTAGE = "outage"


def demo(
    which: Annotated[
        Which | None,
        typer.Argument(
            help="Another demo: schedules, events, outage.", show_default=False, metavar="[schedules|events|outage]"
        ),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", help="The folder for the demo's files.")] = Path(".semel-demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the last run and start over.")] = False,
    debug: Debug = False,
) -> None:
    """Watch a payment happen once: 50 requests, a worker killed in the middle of the charge, one charge.

    Takes about 15 seconds and needs nothing else. The last line is computed from the payment provider's ledger; if it
    is not true, the demo says so and exits with 1. Run it again: the payment is done, and nothing is charged.

    `semel demo schedules`: three minutes of virtual time with an outage in it, under the three misfire policies.

    `semel demo events`: one payment delivered five times by three processes, one of which is killed; one run.

    `semel demo outage`: tenants register while the engine is down, a relay is killed; each is provisioned once.
    """

    def work() -> Exit:
        if which is Which.SCHEDULES:
            return play_schedules()
        if which is Which.EVENTS:
            return play_events()
        if which is Which.OUTAGE:
            return play_outage()
        with _locked(folder):
            if fresh:
                _delete_files(folder)
            try:
                return asyncio.run(_run(folder.resolve()))
            except (DemoFailed, EngineError, LedgerDamaged) as error:
                _line(f"The demo cannot continue: {error}. Try: semel demo --fresh", "bold red")
                return Exit.FAILED

    guarded(work, debug)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("w")
    except OSError as error:
        raise ConfigError(f"the demo cannot write to {folder}: {error}. Give another --dir.") from error
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EngineUnavailable(
                f"another demo is running in {folder}. Wait for it, or give another --dir."
            ) from None
        yield


def _delete_files(folder: Path) -> None:
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def _line(text: str = "", style: str = "") -> None:
    console(sys.stdout).print(Text(text, style), soft_wrap=True)


def _open(folder: Path) -> App:
    app = App(f"sqlite:///{folder / DATABASE}", namespace=shop.settings.namespace, config=None)
    app.tasks.add(pay)
    return app


async def _run(folder: Path) -> Exit:
    async with _open(folder) as app:
        before = await app.explain(KEY)
        if _is_paid(before):
            return await _ask_again(app, folder)
    if before.executions or read_ledger(folder):
        _line("The last demo was interrupted, or was long ago: starting over.", "dim")
    _delete_files(folder)
    async with _open(folder) as app:
        _line(f"A payment of {CENTS / 100:.2f} for {ORDER}, which must happen once.", "bold")
        run = DemoRun(folder, app)
        await run.play()
        explained = await app.explain(KEY)
        _line()
        _line(explained.text)
    result = claim(read_ledger(folder), explained, kills=run.kills, receipts=run.receipts)
    _line()
    _line(f"The provider's ledger ({folder / LEDGER}): {result.calls} calls, {result.charges} charge(s).")
    return _verdict(result)


def _is_paid(explained: Explanation) -> bool:
    """Is the payment done, and its result still kept?"""
    for execution in explained.executions[:1]:
        ends = execution.window_ends_at
        done = execution.status is Status.COMPLETED and not execution.expired
        return done and ends is not None and explained.asked_at < ends
    return False


async def _ask_again(app: App, folder: Path) -> Exit:
    """Ask once more for a payment that is done: its result comes back, and the ledger stays as it was."""
    before = read_ledger(folder)
    handle: Handle[object] = await app.enqueue(pay.call(ORDER, CENTS), task_id=KEY)
    execution = await handle.describe()
    _line(f"The payment is already done, as execution {handle.id}:", "green")
    _line(f"  {await handle.result(timeout=0)}")
    explained = await app.explain(KEY)
    _line()
    _line(explained.text)
    _line()
    ledger = read_ledger(folder)
    new = len(ledger) - len(before)
    _line(
        f"Asked once more: {'a duplicate' if handle.duplicate else 'NOT a duplicate'}, {new} new calls to the provider."
    )
    code = _verdict(claim(ledger, explained, kills=execution.attempt - 1))
    _line("  next: semel demo --fresh", "dim")
    return code if handle.duplicate and new == 0 else Exit.FAILED


def _verdict(result: Claim) -> Exit:
    if result.doubts:
        _line(f"NOT once: {'; '.join(result.doubts)}.", "bold red")
        return Exit.FAILED
    _line(str(result), "bold green")
    return Exit.OK


@dataclass(frozen=True, slots=True)
class Claim:
    """What happened, in numbers that were counted on disk."""

    calls: int
    charges: int
    requests: int
    duplicates: int
    crashes: int
    doubts: tuple[str, ...]
    """Why it is not true that the payment happened once; empty when it is true."""

    def __str__(self) -> str:
        return (
            f"once: {_count(self.charges, 'charge')}, {_count(self.requests, 'request')}, "
            f"{_count(self.duplicates, 'duplicate')} suppressed, {_count(self.crashes, 'crash', 'crashes')} survived"
        )


def claim(ledger: Sequence[Entry], told: Explanation, *, kills: int, receipts: Sequence[str] | None = None) -> Claim:
    """Count the charges in the ledger, the requests in the explanation, and the kills that were survived.

    `receipts` are what the customers got; without them (in a later run) they are not checked.
    """
    charges = [entry.charge for entry in ledger if entry.charged]
    duplicates = sum(suppressed.count for suppressed in told.suppressed or ())
    requests = len(told.executions) + duplicates
    completed = [execution for execution in told.executions if execution.status is Status.COMPLETED]
    survived = kills if completed and completed[0].attempt == kills + 1 else 0
    doubts = []
    if len(charges) != 1:
        doubts.append(f"the provider's ledger has {len(charges)} charges")
    if len({entry.key for entry in ledger}) != 1:
        doubts.append(f"the provider saw {len({entry.key for entry in ledger})} effect keys")
    if len(told.executions) != 1 or len(completed) != 1:
        doubts.append(f"{len(told.executions)} executions were admitted and {len(completed)} completed")
    if survived != kills or len(ledger) != kills + 1:
        doubts.append(f"{kills} crashes, {len(ledger)} calls and {survived} survived do not fit together")
    if receipts is not None:
        if requests != REQUESTS or kills != 1:
            doubts.append(f"{requests} of {REQUESTS} requests are accounted for, and {kills} of 1 kills")
        if len(receipts) != REQUESTS or set(receipts) != set(charges):
            doubts.append(f"{len(receipts)} receipts name {sorted(set(receipts))}, the ledger {charges}")
    return Claim(len(ledger), len(charges), requests, duplicates, survived, tuple(doubts))


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {many or one + 's'}"


class DemoRun:
    """One run of the demo in its folder."""

    def __init__(self, folder: Path, app: App) -> None:
        self._folder = folder
        self._app = app
        self._began = time.monotonic()
        self.receipts: list[str] = []
        self.kills = 0

    async def play(self) -> None:
        """From the first request to the last receipt."""
        try:
            async with asyncio.timeout(LONGEST), DemoProcesses(self._folder) as processes:
                await self._play(processes)
        except TimeoutError:
            raise DemoFailed(f"it did not end within {LONGEST:g} s; see {self._folder / LOG}") from None

    async def _play(self, processes: DemoProcesses) -> None:
        provider = await processes.start_function("demo_shop", "run_provider", PROVIDER_TAKES)
        await processes.until(self._provider_listens, provider)
        self._say(f"The payment provider is open. A charge takes {PROVIDER_TAKES:g} s.")
        each = REQUESTS // CUSTOMERS
        customers = [
            await processes.start_function("demo_shop", "run_customer", each, talks=True) for _ in range(CUSTOMERS)
        ]
        for customer in customers:
            await processes.read(customer)
        self._say(f"{CUSTOMERS} processes ask for the payment of {ORDER}, {each} times each, all at once.")
        for customer in customers:
            if customer.stdin is not None:
                customer.stdin.write(b"go\n")
        admitted = sum([(await processes.read(customer))["admitted"] for customer in customers])
        self._say(f"{REQUESTS} requests with the key {KEY!r}: {admitted} admitted.")
        await self._kill_a_worker(processes)
        worker = await self._start_worker(
            processes, "A new worker starts; it waits until the dead one's lease is over."
        )
        await processes.until(self._second_attempt_runs, worker)
        self._say("The lease is over: the new worker takes the payment, attempt 2.")
        await processes.until(self._provider_is_called_again, worker)
        self._report_second_call(read_ledger(self._folder)[1])
        for customer in customers:
            self.receipts += (await processes.read(customer))["receipts"]
            await customer.wait()
        self._say(f"All {len(self.receipts)} callers hold a receipt: {', '.join(sorted(set(self.receipts)))}.", "green")
        await processes.stop(worker)

    async def _kill_a_worker(self, processes: DemoProcesses) -> None:
        """Kill a worker after the provider has charged the card and before it has answered."""
        worker = await self._start_worker(processes, "A worker starts.")
        await processes.until(self._provider_is_called, worker)
        self._say("The provider has charged the card and has not answered yet.", "yellow")
        worker.kill()
        code = await worker.wait()
        execution = await self._execution()
        if code == -9 and execution is not None and execution.status is Status.RUNNING:
            self.kills += 1
        self._say(f"Worker {worker.pid} is killed with SIGKILL (kill -9) in the middle of the charge.", "bold red")

    async def _start_worker(self, processes: DemoProcesses, what: str) -> Process:
        command = ("-m", "semel", "worker", "semel.cli.demo_shop:app", "--lease", LEASE, "--log-level", "warning")
        worker = await processes.start(*command, "--tied")
        self._say(f"{what} (process {worker.pid})")
        return worker

    def _report_second_call(self, entry: Entry) -> None:
        if entry.charged:
            self._say("The provider is called again and charges AGAIN.", "bold red")
        else:
            again = f"{entry.charge} stands, and nothing is charged."
            self._say(f"The provider is called again with the same effect key: {again}", "green")

    def _say(self, text: str, style: str = "") -> None:
        console(sys.stdout).print(
            Text(f"{time.monotonic() - self._began:5.1f} s  ", "dim") + Text(text, style), soft_wrap=True
        )

    async def _provider_listens(self) -> bool:
        return (self._folder / PORT_FILE).exists()

    async def _provider_is_called(self) -> bool:
        return bool(read_ledger(self._folder))

    async def _provider_is_called_again(self) -> bool:
        return len(read_ledger(self._folder)) > 1

    async def _second_attempt_runs(self) -> bool:
        execution = await self._execution()
        return execution is not None and execution.attempt > 1

    async def _execution(self) -> Execution | None:
        return next(iter((await self._app.explain(KEY)).executions), None)
