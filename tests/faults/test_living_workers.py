"""Workers that live are not taken for dead: not after the database was away, nor because its clock jumped."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

import semel
from semel.engines.journal import leases
from semel.engines.journal.claims import claim, load_lanes
from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.script import Store
from semel.engines.journal.worker import JournalWorker
from semel.engines.sqlite.driver import choose_driver
from tests.faults.proxy import Proxy
from tests.world import World, eventually, unbounded


def _store(app: semel.App) -> Store:
    engine = unbounded(app.engine)
    assert isinstance(engine, JournalEngine)
    return engine._store


class Crew:
    """Some workers, as in processes of their own, each with a task that has no second attempt."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.go_on = asyncio.Event()
        self.workers: list[JournalWorker] = []

    @asynccontextmanager
    async def at_work(
        self, url: str, world: World, lease: str, count: int = 3, namespace: str = "crew"
    ) -> AsyncIterator[semel.App]:
        """Each of them runs one task, until `go_on` is set."""
        async with contextlib.AsyncExitStack() as stack:
            apps = [semel.App(url, config=None, clock=world.time, namespace=namespace) for _ in range(count)]
            for app in apps:
                await stack.enter_async_context(app)

                @app.task(name="work", retry=1)
                async def work(n: int) -> int:
                    self.runs.append(n)
                    await self.go_on.wait()
                    return n

            for app in apps:
                worker = await stack.enter_async_context(app.worker(lease=lease, concurrency=1, grace=0))
                assert isinstance(worker, JournalWorker)
                self.workers.append(worker)
            self.handles = await apps[0].enqueue_many([apps[0].tasks["work"].call(n) for n in range(count)])
            await eventually(lambda: len(self.runs) == count)
            yield apps[0]

    async def all_beat(self) -> None:
        """Each has renewed its lease once more."""
        before = [worker.heart._last for worker in self.workers]
        for worker in self.workers:
            worker.heart.due_in(0)
        await eventually(lambda: all(w.heart._last > b for w, b in zip(self.workers, before, strict=True)))

    async def first_beats(self) -> None:
        """One beats and does what it finds to do, before any other."""
        heart = self.workers[0].heart
        for _ in range(2):
            before = heart._last
            heart.due_in(0)
            await eventually(lambda before=before: heart._last > before and not heart._busy)

    async def finish(self) -> None:
        """Every task ends well, and ran once."""
        self.go_on.set()
        for n, handle in enumerate(self.handles):
            assert await handle.result(timeout="60s") == n
        assert sorted(self.runs) == list(range(len(self.handles)))


async def test_a_clock_that_jumps_forward_kills_nobody(world: World) -> None:
    crew = Crew()
    async with crew.at_work(world.url, world, "10m"):
        await crew.all_beat()
        ids = [worker.id for worker in crew.workers]
        await world.jump("1h")
        await crew.first_beats()
        await crew.all_beat()
        assert [worker.id for worker in crew.workers] == ids
        await crew.finish()


@pytest.mark.slow
async def test_a_database_that_was_away_for_longer_than_a_lease_kills_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connections carry nothing, or (SQLite) somebody holds its lock: whoever beats first finds all overdue.

    The log says once that the database does not answer, however often and whatever a worker tries, that the worker is
    silent, and that the database is back.
    """
    crew = Crew()
    async with _reachable(world) as (url, away), crew.at_work(url, world, "1s"):
        await crew.all_beat()
        async with away():
            since, before = time.monotonic(), len(caplog.messages)
            await eventually(lambda: time.monotonic() - since > 2.5)
            lost_meanwhile = [one for one in caplog.messages[before:] if "the database does not answer worker" in one]
        await crew.all_beat()
        await crew.finish()
    silent = [line for line in caplog.messages if "is silent for" in line]
    lost = [line for line in caplog.messages if "the database does not answer worker" in line]
    answered = [line for line in caplog.messages if "the database answers worker" in line]
    # Told once for each absence, not for each try; a worker that is stopped while it is silent tells of no answer.
    assert 1 <= len(silent) <= len(answered) + len(crew.workers), caplog.messages
    assert 1 <= len(lost_meanwhile) <= len(crew.workers), caplog.messages
    # On a busy machine a heartbeat may be late once more: that has two lines of its own.
    assert len(lost) == len(answered) >= len(crew.workers), caplog.messages


@asynccontextmanager
async def _reachable(world: World) -> AsyncIterator[tuple[str, Callable[[], AbstractAsyncContextManager[None]]]]:
    if world.engine == "sqlite":

        @asynccontextmanager
        async def locked() -> AsyncIterator[None]:
            holder = choose_driver().connect(world.url.removeprefix("sqlite:///"), patience=10)
            holder.execute_script("begin immediate")
            try:
                yield
            finally:
                holder.execute_script("rollback")
                holder.close()

        yield world.url, locked
        return
    async with Proxy(world.url).running() as proxy:

        @asynccontextmanager
        async def vanished() -> AsyncIterator[None]:
            proxy.vanish()
            try:
                yield
            finally:
                proxy.come_back()

        yield proxy.url, vanished


@pytest.mark.slow
async def test_a_connection_that_carries_nothing_any_more_is_replaced_within_the_lease(postgres_world: World) -> None:
    crew, others = Crew(), Crew()
    async with (
        Proxy(postgres_world.url).running() as proxy,
        crew.at_work(proxy.url, postgres_world, "3s", 1, "one"),
        others.at_work(postgres_world.url, postgres_world, "3s", 1, "two"),
    ):
        ids = [worker.id for worker in crew.workers]
        proxy.deafen_all()
        last = crew.workers[0].heart._last
        await eventually(lambda: crew.workers[0].heart._last > last + 3)
        assert [worker.id for worker in crew.workers] == ids
        await crew.finish()
        await others.finish()


async def test_a_lone_worker_recovers_a_lease_after_it_started(world: World, caplog: pytest.LogCaptureFixture) -> None:
    app, ran = world.app(), []

    @app.task
    async def work() -> str:
        ran.append(time.monotonic())
        return "done"

    handle = await app.enqueue(work)
    store = _store(app)
    dead = await store.run(leases.register, 4711, "default", "dead", "all", 500_000)
    lanes = [row[0] for row in (await store.run(load_lanes, "default", None))[0]]
    assert await store.run(claim, dead, lanes, [0] * len(lanes), ["work"], 1)
    await world.jump("1h")
    began = time.monotonic()
    async with app.worker(lease="500ms"):
        assert await handle.result(timeout="60s") == "done"
    assert ran[0] - began >= 0.5
    assert "took back 1 tasks, workflows and entities of workers that are dead" in caplog.messages


async def test_a_clock_set_back_does_not_keep_the_dead_alive(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    handle = await app.enqueue(work)
    store = _store(app)
    dead = await store.run(leases.register, 4711, "default", "dead", "all", 500_000)
    lanes = [row[0] for row in (await store.run(load_lanes, "default", None))[0]]
    assert await store.run(claim, dead, lanes, [0] * len(lanes), ["work"], 1)
    await world.turn_back("1h")
    async with app.worker(lease="500ms"):
        assert await handle.result(timeout="60s") == "done"
