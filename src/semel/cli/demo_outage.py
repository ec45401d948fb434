"""`semel demo outage`: tenants register while the engine is down, a relay is killed; each is provisioned once."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sqlite3
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from semel import App, Observer
from semel.cli.command import Exit
from semel.cli.demo_processes import DemoFailed, DemoProcesses
from semel.cli.output import console
from semel.transactional.statements import read_queries

BUSINESS: Final = "tenants.db"
ENGINE: Final = "engine"
"""The folder with the engine's database. While the engine is down it is elsewhere."""
AWAY: Final = "engine-is-down"
BEFORE: Final = 4
MEANWHILE: Final = 12
AFTER: Final = 4
EVERY: Final = 0.15
"""Seconds between two registrations while the engine is down."""
LEASE: Final = "2s"
"""For so long nobody else takes the rows of a relay that was killed."""
LONGEST: Final = 90.0
PATIENCE: Final = 30.0
"""Seconds to wait for another writer of the business database."""


@cache
def _queries() -> dict[str, str]:
    return read_queries(resources.files("semel.cli") / "demo_sql")


class Business:
    """A transaction in the database of the business: committed at the end of `with`, or rolled back."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / BUSINESS, timeout=PATIENCE, isolation_level=None)

    def run(self, name: str, *args: object) -> sqlite3.Cursor:
        """Run a statement of demo_sql/outage.sql."""
        return self.db.execute(_queries()[name], args)

    def count(self, name: str) -> int:
        """The number that a statement of demo_sql/outage.sql finds."""
        return int(self.run(name).fetchone()[0])

    def __enter__(self) -> Business:
        self.db.execute("begin immediate")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing(self.db):
            self.db.execute("commit" if kind is None else "rollback")


definitions = App("sqlite:///:memory:", namespace="demo", config=None)
"""What the demo's processes have in common; each opens it on the files of its folder."""


@definitions.task
def provision(tenant: int) -> str:
    """Make a tenant active. It reads the status first: a tenant that is active needs nothing."""
    with Business(Path.cwd()) as business:
        (status,) = business.run("status_of_tenant", tenant).fetchone()
        if status == "active":
            return "was active"
        business.run("activate_tenant", tenant)
    return "active now"


def open_app(folder: Path, observer: Observer | None = None) -> App:
    """The app that the demo's processes share: its outbox is beside the business rows, its engine elsewhere."""
    app = App(
        f"sqlite:///{folder / ENGINE / 'semel.db'}",
        namespace=definitions.settings.namespace,
        outbox=f"sqlite:///{folder / BUSINESS}",
        config=None,
        observer=observer,
    )
    app.tasks.add(provision)
    return app


def register(app: App, folder: Path, slug: str, engine: str) -> tuple[int, bool]:
    """Register a tenant and ask for its provisioning, in one transaction. Its id, and whether it is new."""
    with Business(folder) as business:
        new = business.run("add_tenant", slug, engine).rowcount == 1
        (tenant,) = business.run("tenant_of_slug", slug).fetchone()
        if new:
            app.sync.enqueue(provision, tenant, task_id=f"provision-tenant-{tenant}", connection=business.db)
    return tenant, new


@dataclass(frozen=True)
class Registrations:
    """What the business table says at the end, what is on record, and what was killed."""

    tenants: list[tuple[str, str, int, str]]
    """The business table: slug, status, how often it was provisioned, how the engine was when it registered."""
    executions: int
    repeats: int
    """Registrations that were sent again and answered with the tenant that they had made."""
    unmarked: int
    """Starts that the killed relay had handed over and not marked."""
    killed: int
    """Processes that died of SIGKILL."""

    @property
    def doubts(self) -> list[str]:
        """Why it is not true that each was provisioned once; empty when it is true."""
        doubts = []
        if len(self.tenants) != BEFORE + MEANWHILE + AFTER:
            doubts.append(f"{len(self.tenants)} of {BEFORE + MEANWHILE + AFTER} tenants are registered")
        if self.while_down != MEANWHILE:
            doubts.append(f"{self.while_down} of {MEANWHILE} registered while the engine was down")
        if waiting := [slug for slug, status, _, _ in self.tenants if status != "active"]:
            doubts.append(f"{len(waiting)} tenants are not active ({', '.join(waiting[:3])})")
        for slug, _, times, _ in self.tenants:
            if times != 1:
                doubts.append(f"{slug} was provisioned {times} times")
        if self.executions != len(self.tenants):
            doubts.append(f"{self.executions} executions are on record for {len(self.tenants)} tenants")
        if self.repeats != 1:
            doubts.append(f"{self.repeats} registrations that were sent again gave the same tenant, not one")
        if self.killed != 3 or self.unmarked < 1:
            doubts.append(f"{self.killed} of 3 processes were killed, with {self.unmarked} starts that were not marked")
        return doubts

    @property
    def while_down(self) -> int:
        """Tenants that registered while there was no engine."""
        return sum(engine == "down" for *_, engine in self.tenants)

    def sum_up(self) -> str:
        """The last line, counted from the business table."""
        active = sum(status == "active" for _, status, _, _ in self.tenants)
        times = sum(times for _, _, times, _ in self.tenants)
        return (
            f"once: {len(self.tenants)} tenants registered, {self.while_down} of them while the engine was down; "
            f"{active} active, {times} provisioned, {self.killed} processes killed"
        )


@dataclass
class Outage:
    """One play of the demo, in a folder of its own."""

    folder: Path
    killed: int = 0
    repeats: int = 0
    unmarked: int = 0
    slugs: Iterator[str] = field(default_factory=lambda: (f"tenant-{number}" for number in range(1, 1000)))
    began: float = field(default_factory=time.monotonic)

    async def play(self) -> Registrations:
        """From the first registration until the last tenant is active."""
        (self.folder / ENGINE).mkdir()
        with Business(self.folder) as business:
            business.run("create_tenants")
        app = open_app(self.folder)
        await app.outbox.init()
        try:
            async with DemoProcesses(self.folder) as processes:
                await self._play(app, processes)
            executions = len(await app.list(limit=1000))
        finally:
            await app.close()
            await asyncio.to_thread(app.sync.close)
        with Business(self.folder) as business:
            tenants = business.run("all_tenants").fetchall()
        return Registrations(tenants, executions, self.repeats, self.unmarked, self.killed)

    async def _play(self, app: App, processes: DemoProcesses) -> None:
        relays = [await self._prepare(processes, "run_relay", stops) for stops in (False, True, False)]
        workers = [await self._prepare(processes, "run_worker", None) for _ in range(2)]
        await self._begin(processes, relays[0])
        await self._begin(processes, workers[0])
        self._say(f"The engine is up. Relay {relays[0].pid} and worker {workers[0].pid} run.")
        await self._register(app, BEFORE, "up")
        await processes.until(self._all_active, workers[0])
        await processes.until(self._all_processed, relays[0])
        self._say(f"{BEFORE} tenants registered, and each is active.", "green")

        await self._take_down(relays[0], workers[0])
        await self._begin(processes, relays[1])
        self._say(f"Relay {relays[1].pid} begins, and finds no engine.")
        await self._register(app, MEANWHILE, "down")
        await processes.until(self._seen_down, relays[1])
        self._say(
            f"{MEANWHILE} tenants registered all the same; {self._pending()} starts wait in the outbox.", "yellow"
        )
        await self._register_again(app)

        (self.folder / AWAY).rename(self.folder / ENGINE)
        self._say("The engine is back.", "bold green")
        await self._kill_while_relaying(app, processes, relays[1])

        await self._begin(processes, relays[2])
        await self._begin(processes, workers[1])
        self._say(
            f"Relay {relays[2].pid} takes over when the lease of the dead one is over; worker {workers[1].pid} runs."
        )
        await self._register(app, AFTER, "up")
        await processes.until(self._all_active, workers[1])
        await processes.until(self._all_processed, relays[2])
        self._say(f"{AFTER} more registered. Everything is relayed, and every tenant is active.", "green")

    async def _prepare(self, processes: DemoProcesses, name: str, argument: object) -> Process:
        """Start a process, which does nothing yet: Python takes a while, and these may take it together."""
        return await processes.start_function("demo_outage", name, argument, talks=True)

    async def _begin(self, processes: DemoProcesses, process: Process) -> None:
        if process.stdin is not None:
            process.stdin.write(b"begin\n")
        await processes.read(process)

    async def _register(self, app: App, count: int, engine: str) -> None:
        for _, slug in zip(range(count), self.slugs, strict=False):
            await asyncio.to_thread(register, app, self.folder, slug, engine)
            await asyncio.sleep(EVERY if engine == "down" else 0)

    async def _register_again(self, app: App) -> None:
        """The last one gets impatient and sends the form again."""
        with Business(self.folder) as business:
            last, slug = business.run("newest_tenant").fetchone()
        again, new = await asyncio.to_thread(register, app, self.folder, slug, "down")
        self.repeats += again == last and not new
        self._say(f"{slug} sends the form again, and is answered with the same tenant.")

    async def _take_down(self, *processes: Process) -> None:
        """Kill what uses the engine, and take its files away."""
        for process in processes:
            await self._kill(process)
        (self.folder / ENGINE).rename(self.folder / AWAY)
        self._say("Power cut: relay and worker are killed with SIGKILL, the engine's disk is gone.", "bold red")

    async def _kill_while_relaying(self, app: App, processes: DemoProcesses, relay: Process) -> None:
        """Kill the relay after the engine has answered it and before it has marked rows as processed."""
        await processes.read(relay)
        await self._kill(relay)
        with Business(self.folder) as business:
            waiting = business.run("pending_keys").fetchall()
        self.unmarked = sum([await app.find(key) is not None for (key,) in waiting])
        self._say(
            f"Relay {relay.pid} has handed over {self.unmarked} starts and marked none of them: killed with SIGKILL.",
            "bold red",
        )

    async def _kill(self, process: Process) -> None:
        process.kill()
        self.killed += await process.wait() == -signal.SIGKILL

    def _pending(self) -> int:
        return self._count("count_pending")

    async def _all_processed(self) -> bool:
        return self._pending() == 0

    async def _all_active(self) -> bool:
        return self._count("count_not_active") == 0

    async def _seen_down(self) -> bool:
        return self._count("count_unavailable") == 1

    def _count(self, query: str) -> int:
        with Business(self.folder) as business:
            return business.count(query)

    def _say(self, text: str, style: str = "") -> None:
        console().print(Text(f"{time.monotonic() - self.began:5.1f} s  ", "dim") + Text(text, style), soft_wrap=True)


def play_outage() -> Exit:
    """Play the demo and say what came of it; FAILED if its last line is not true."""
    logging.getLogger("semel").addHandler(logging.NullHandler())
    _line("Tenants register while the engine is down, and each is provisioned once.", "bold")
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as folder:
        try:
            found = asyncio.run(_within(Outage(Path(folder))))
        except (DemoFailed, TimeoutError) as error:
            _line(f"The demo cannot continue: {str(error) or f'it did not end within {LONGEST:g} s'}.", "bold red")
            return Exit.FAILED
    _line()
    console().print(_table(found))
    if found.doubts:
        _line(f"NOT once: {'; '.join(found.doubts)}.", "bold red")
        return Exit.FAILED
    _line(found.sum_up(), "bold green")
    return Exit.OK


def _table(found: Registrations) -> Table:
    """The business table, summed up."""
    table = Table("registered while the engine was", "tenants", "active", "provisioned", title="tenants.db")
    for engine in ("up", "down"):
        rows = [row for row in found.tenants if row[3] == engine]
        active = sum(status == "active" for _, status, _, _ in rows)
        table.add_row(engine, str(len(rows)), str(active), str(sum(times for _, _, times, _ in rows)))
    return table


def _line(text: str = "", style: str = "") -> None:
    console().print(Text(text, style), soft_wrap=True)


async def _within(outage: Outage) -> Registrations:
    async with asyncio.timeout(LONGEST):
        return await outage.play()


class StopAmongStarts(Observer):
    """Stops the process in the middle of a batch, so that the demo can kill it before it marks what it has handed over.

    With the first row a relay only tries whether the engine is back; the others are started together.
    """

    def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
        """Block the event loop, and with it the relay, until the process is killed or the demo ends."""
        if verb == "start_many" and error is None:
            _report(started=True)
            sys.stdin.read()

    def event(self, event: object) -> None:
        """Nothing else is of interest."""


def run_relay(stops: bool) -> None:
    """Relay until stdin ends; `stops`: until some rows are started and not marked, and then wait to be killed."""
    asyncio.run(_relay(StopAmongStarts() if stops else None))


async def _relay(observer: Observer | None) -> None:
    if not sys.stdin.readline():
        return
    async with open_app(Path.cwd(), observer) as app, app.relay(lease=LEASE, poll="200ms"):
        _report(ready=True)
        await asyncio.to_thread(sys.stdin.read)


def run_worker(_: None) -> None:
    """Work until stdin ends."""
    asyncio.run(_work())


async def _work() -> None:
    if not sys.stdin.readline():
        return
    async with open_app(Path.cwd()) as app, app.worker():
        _report(ready=True)
        await asyncio.to_thread(sys.stdin.read)


def _report(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
