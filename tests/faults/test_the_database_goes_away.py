"""Faults 4, 30 and 31: PostgreSQL crashes or cuts connections, SQLite is crowded, a transaction is held open."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from contextlib import closing, suppress
from pathlib import Path

import asyncpg
import pytest

from semel.engines.journal import leases
from semel.engines.sqlite.driver import choose_driver
from tests.conftest import new_world
from tests.faults.forks import Forks
from tests.faults.invariants import broken
from tests.faults.server import Fragile, fragile_postgres
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import World, eventually

CUT = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where application_name like 'semel%' and datname = current_database()"
)


def _site(server: Fragile, folder: Path) -> Site:
    server.sql("create database semel")
    site = Site("postgres", server.url("semel"), str(folder))
    asyncio.run(site.build())
    return site


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_database_that_crashes_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    """fault 4: `stop -m immediate` while workers claim, settle and recover."""
    with fragile_postgres() as server:
        site = _site(server, tmp_path)

        async def play() -> None:
            async with Shop(site) as shop:
                await shop.app.enqueue_many([(shop.charge.call(f"o-{n}"), f"k-{n}") for n in range(300)])
                await shop.hold(50)  # a dead worker, whose tasks must be recovered meanwhile
                await site.sql("update semel_worker set expires_at = semel_now() + 300000")
                async with shop.app.worker(lease="4s", concurrency=5) as worker:
                    for round_ in range(2):
                        before = len(site.ledger.effects())
                        await eventually(lambda before=before: len(site.ledger.effects()) > before + 20, within=60)
                        await asyncio.to_thread(server.end, signal.SIGQUIT)
                        await asyncio.to_thread(server.start)
                        assert round_ < 2
                    done = "select count(*) from semel_execution where status = 'completed'"

                    async def all_done() -> bool:
                        return (await site.sql(done))[0][0] == 300

                    await eventually(all_done, within=90)
                    await eventually(lambda: worker.healthy)
            assert await broken(site, most=1 + 2 + 1, keys=[f"k-{n}" for n in range(300)]) == []

        asyncio.run(play())


@pytest.mark.slow
async def test_cut_connections_neither_lose_nor_repeat_work(postgres_world: World, tmp_path: Path) -> None:
    """fault 4: pg_terminate_backend at random moments. Nobody died, so nothing may happen twice."""
    site = Site("postgres", postgres_world.url, str(tmp_path))
    dice = random.Random(4)
    async with Shop(site) as shop:
        await shop.app.enqueue_many([(shop.charge.call(f"o-{n}"), f"k-{n}") for n in range(400)])
        done = "select count(*) from semel_execution where status = 'completed'"
        async with shop.app.worker(lease="30s", concurrency=5):
            cuts = 0
            while (await site.sql(done))[0][0] < 400:
                if cuts < 25:
                    cuts += 1
                    await site.sql(CUT)
                await asyncio.sleep(dice.uniform(0.0, 0.09))
        times = site.ledger.times()
    assert len(times) == 400
    twice = [effect for effect in site.ledger.effects() if times[effect.key] > 1]
    assert twice == []


async def test_a_recovery_that_is_cut_off_anywhere_is_finished_by_the_next(
    postgres_world: World, tmp_path: Path
) -> None:
    """fault 4: the connection breaks at each statement of a recovery."""
    site = Site("postgres", postgres_world.url, str(tmp_path))

    class Cut:
        def __init__(self, at: int) -> None:
            self.at = at
            self.count = 0

        def before(self, statement: str) -> None:
            self.count += 1
            if self.count == self.at:
                raise ConnectionResetError("cut")

        def after(self, statement: str) -> None: ...

    async with Shop(site) as shop:
        for at in range(1, 10):
            handle = await shop.app.enqueue(shop.charge, f"o-{at}")
            await shop.hold()
            await site.advance(3600)
            shop.store.tap = cut = Cut(at)
            with suppress(ConnectionError):
                await shop.store.run(leases.recover)
            shop.store.tap = None
            await shop.store.run(leases.recover)
            _, claims = await shop.hold()
            assert [one.execution for one in claims] == [handle.id]
            await shop.app.engine.cancel(handle.id)
            await site.advance(3600)
            await shop.store.run(leases.recover)
            if cut.count < at:
                break
        else:
            raise AssertionError("a recovery has an end")


@pytest.mark.slow
def test_eight_processes_share_a_sqlite_file_while_a_reader_pins_it(
    tmp_path: Path, request: pytest.FixtureRequest, fork_server: Forks
) -> None:
    """fault 30"""
    world = new_world("sqlite", tmp_path, request)
    site = Site("sqlite", world.url, str(tmp_path))
    asyncio.run(site.build())
    with closing(choose_driver().connect(str(site.path), patience=10)) as pinned:
        pinned.execute("begin")
        pinned.execute("select count(*) from semel_execution")
        calls = [("tests.faults.crowd:mixed_load", {"site": site.plain(), "who": n, "rounds": 8}) for n in range(8)]
        answers = fork_server.together(*calls)
        assert [code for code, _ in answers] == [0] * 8, answers
        pinned.execute("rollback")
    with closing(choose_driver().connect(str(site.path), patience=10)) as db:
        assert db.execute("pragma integrity_check") == [("ok",)]
        db.execute("pragma wal_checkpoint(truncate)")
    wal = Path(f"{site.path}-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    keys = [f"shared-{n}" for n in range(8)] + [f"p{who}-{n}" for who in range(8) for n in range(8)]
    assert asyncio.run(broken(site, most=1, keys=keys)) == []


@pytest.mark.slow
async def test_a_transaction_held_open_does_not_collapse_throughput(postgres_world: World) -> None:
    """fault 31, the short version: dead rows cannot be removed, and are not waded through."""
    app = postgres_world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    holder = await asyncpg.connect(postgres_world.url)
    try:
        await holder.execute("begin isolation level repeatable read; select count(*) from semel_execution")
        times = []
        async with postgres_world.worker(app, concurrency=100):
            for _ in range(12):  # a machine that is busy for a while gets another chance; dead rows only become more
                began = time.monotonic()
                handles = await app.enqueue_many([work.call(n) for n in range(500)])
                await asyncio.gather(*(handle.result(timeout="60s") for handle in handles))
                times.append(time.monotonic() - began)
                if len(times) >= 6 and min(times[3:]) < 3 * min(times[:3]) + 0.5:
                    break
        assert min(times[3:]) < 3 * min(times[:3]) + 0.5, times
    finally:
        await holder.close()
