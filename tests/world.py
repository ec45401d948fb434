"""The world a test lives in: a database, a clock that can be moved, and apps that are closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg

import semel
from semel.contract.durations import Duration, parse_duration
from semel.engine.protocol import Engine
from semel.engines.journal.leases import Reachability
from semel.engines.journal.worker import JournalWorker
from semel.engines.sqlite.driver import choose_driver

T = TypeVar("T")

SKEWED_NOW = """
create table semel_skew (micros bigint not null);
insert into semel_skew values (0);
create or replace function semel_now() returns bigint language sql stable as
  $$ select (extract(epoch from now()) * 1000000)::bigint + (select micros from semel_skew) $$;
"""
"""Put into the template database of the tests, so that time can be moved at the database's own seam."""

SOON = 60.0
"""How long a test waits for something that should happen at once, on a machine that is busy."""


class World:
    """One database for one test. `world.app()` opens apps on it, `world.advance("7d")` moves its clock."""

    a_moment = 0.05
    """Seconds in which a worker gets something done, and not everything."""

    def __init__(self, engine: str, url: str) -> None:
        self.engine = engine
        self.url = url
        self._skew = 0.0
        self.passed = 0.0
        """Seconds that a test has let pass."""
        self._apps: list[semel.App] = []
        self._workers: list[JournalWorker] = []
        self.in_one_loop = False
        """Is it used in one event loop only, which closes it at the end?"""
        self._idle: asyncpg.Connection | None = None
        """A connection to look at the tables from outside, while nobody does."""

    def app(self, **options: Any) -> semel.App:
        """A new app on this world's database. Several apps stand for several processes."""
        app = semel.App(self.url, clock=self.time, **self.app_options(**options))
        self._apps.append(app)
        return app

    def app_options(self, **options: Any) -> dict[str, Any]:
        """The options of an app on this world's database, as plain values: another process may be given them."""
        return {"config": None, **options}

    @asynccontextmanager
    async def worker(self, app: semel.App, **options: Any) -> AsyncIterator[JournalWorker]:
        """A worker of the app that also notices when the clock is moved."""
        async with app.worker(**options) as worker:
            assert isinstance(worker, JournalWorker)
            worker.heart.reachability = InWorldTime(self)
            self._workers.append(worker)
            try:
                yield worker
            finally:
                if worker in self._workers:
                    self._workers.remove(worker)

    def time(self) -> float:
        """Seconds since 1970, as this world's clock shows them."""
        return time.time() + self._skew

    def now(self) -> datetime:
        """The same as a datetime."""
        return datetime.fromtimestamp(self.time(), UTC)

    async def advance(self, span: Duration) -> None:
        """Let time pass: the clock of the database moves forward, every running worker looks at it at once.

        Workers of `world.worker()` have beaten as always meanwhile. A clock that is wrong is `jump`.
        """
        self.passed += parse_duration(span).total_seconds()
        await self.jump(span)
        for worker in self._workers:
            worker.heart.due_in(0)
        self.look_at_schedules()

    def look_at_schedules(self) -> None:
        """Have every worker look at schedules and events, as it would when their time comes."""
        for worker in self._workers:
            for chore in ("schedules", "events"):
                with contextlib.suppress(KeyError):
                    worker.chores[chore].due_in(0)

    async def jump(self, span: Duration) -> None:
        """The clock of the database jumps forward, and nobody's own clock does. For workers of `app.worker()`."""
        self._skew += parse_duration(span).total_seconds()
        await self._set_skew()

    async def advance_until(self, work: Coroutine[Any, Any, T], step: Duration = "1h") -> T:
        """Move the clock on and on until `work` is done: for timers that are set one after the other."""
        task = asyncio.create_task(work)
        while not task.done():
            await self.advance(step)
            await asyncio.wait([task], timeout=0.05)
        return await task

    async def turn_back(self, span: Duration) -> None:
        """Move the clock back, as clocks do when they are corrected."""
        self._skew -= parse_duration(span).total_seconds()
        await self._set_skew()

    async def cut_off(self, worker: JournalWorker) -> None:
        """Stop the heart of a worker while its tasks run on, as when its process hangs or its network is gone."""
        if worker in self._workers:
            self._workers.remove(worker)
        await worker._end_loop("heart")
        await worker._end_loop("claim")

    async def takes_no_more(self, worker: JournalWorker) -> None:
        """Wait until a worker that was asked to stop looks for no more: a look that was under way may find some."""
        await eventually(worker._loops["claim"].done)

    async def count(self, table: str = "semel_execution") -> int:
        """How many rows a table has."""
        return int((await self.sql(f"select count(*) from {table}"))[0][0])

    async def kept_keys(self) -> int:
        """How many message keys, with their answers, all entities together remember."""
        return await self.count("semel_seen")

    async def work(self) -> int:
        """How many executions wait or run."""
        return await self.count("semel_ready") + await self.count("semel_later")

    async def traces(self) -> int:
        """How many rows there are of anything that was asked for."""
        return await self.count() + await self.work() + await self.count("semel_duplicate")

    async def listed(self) -> None:
        """Wait until lists show what was asked for so far. Here they always do."""

    async def clean(self, app: semel.App) -> None:
        """Delete what is past its time, and wait until lists show that."""
        await app.clean()

    async def at_rest(self) -> bool:
        """Does everything that there is only wait?"""
        return await self.count("semel_ready") == 0

    async def left(self) -> int:
        """How many traces there are of work that has not ended."""
        return sum([await self.count(f"semel_{table}") for table in ("ready", "later", "flow", "inbox")])

    async def parts(self) -> int:
        """How many rows there are that only belong to workflows, or wait to be cleaned up."""
        return sum([await self.count(f"semel_{table}") for table in ("journal", "published", "attribute")])

    async def _set_skew(self) -> None:
        if self.engine == "postgres":
            await self.sql("update semel_skew set micros = $1", round(self._skew * 1_000_000))

    async def sql(self, text: str, *args: Any) -> list[tuple[Any, ...]]:
        """Look at the tables from outside ($1 parameters on PostgreSQL, ?1 on SQLite)."""
        if self.engine != "postgres":
            return await asyncio.to_thread(self._sqlite, text, args)
        connection, self._idle = self._idle, None
        if connection is None or connection.is_closed():
            connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await connection.fetch(text, *args)]
        finally:
            if self.in_one_loop and self._idle is None:
                self._idle = connection
            else:
                await connection.close()

    def _sqlite(self, text: str, args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        # The same SQLite library as the engine's: another one in this process would destroy the file.
        with closing(choose_driver().connect(self.url.removeprefix("sqlite:///"), patience=10)) as connection:
            return connection.execute(text, args) if args else connection.execute_script(text)

    async def close(self) -> None:
        """Close every app that was opened."""
        for app in self._apps:
            await app.close()
        if self._idle is not None and not self._idle.is_closed():
            self._idle.terminate()


class InWorldTime(Reachability):
    """A database that answers all the while, also in the time that a test lets pass with `advance`."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._began = world.passed

    def answered(self, lease: int, asked: float, came: float, now: int) -> None:
        """Only gaps count: the clock that a test moves is not one that jumps."""
        super().answered(lease, asked, came, round(came * 1e6))

    def missing(self, lease: int, at: float) -> float:
        """What has passed in the world counts as if it had been waited for."""
        return max(0.0, super().missing(lease, at) - (self._world.passed - self._began))


class AlwaysThere(Reachability):
    """A worker that was there before what died, and saw the database answer all the while."""

    def missing(self, lease: int, at: float) -> float:
        """Nobody need wait."""
        return 0.0


def unbounded(engine: Engine) -> Engine:
    """The engine itself, behind its time limits."""
    inner: Engine = getattr(engine, "inner", engine)
    return inner


async def ended(handle: semel.Handle[Any]) -> semel.Status:
    """Wait for the end of an execution, whichever it is."""
    with contextlib.suppress(semel.OutcomeError):
        await handle.result(timeout=SOON)
    status = await handle.status()
    assert status.terminal, f"still {status}"
    return status


async def eventually(condition: Callable[[], Any], within: float = SOON) -> Any:
    """Wait until `condition()` (or what it returns, awaited) is true; for things in other processes."""
    end = time.monotonic() + within
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {within:g} s: {condition}")
        await asyncio.sleep(0.01)


async def waits(handle: semel.Handle[Any], signal: str | None = None) -> semel.Handle[Any]:
    """Wait until a workflow waits, for this signal if one is named.

    A cluster calls a workflow waiting also while the cluster still starts what the code has asked for.
    """

    async def waiting() -> bool:
        execution = await handle.describe()
        assert not execution.status.terminal, f"{execution.status}: {execution.error}"
        if execution.status is not semel.Status.WAITING:
            return False
        return signal is None or any(event.name == signal for event in await handle.history())

    await eventually(waiting)
    return handle


async def naps(handle: semel.Handle[Any]) -> semel.Handle[Any]:
    """Wait until a workflow, or an entity in the middle of a message, waits for a timer."""

    async def napping() -> bool:
        execution = await handle.describe()
        return execution.status is semel.Status.WAITING and execution.run_at is not None

    await eventually(napping)
    return handle


class Verbs(semel.Observer):
    """An observer that keeps the verbs which the engine has done: a test waits until a request is in."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
        """See semel.Observer."""
        self.done.append(verb)
