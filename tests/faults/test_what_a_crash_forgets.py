"""A crash of the database's machine forgets what was not waited for: claims. What is promised holds all the same."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engines.journal import flows
from semel.engines.sqlite.store import SqliteStore
from tests.faults.server import fragile_postgres
from tests.faults.test_the_database_goes_back import Doors
from tests.world import SOON, World, ended, eventually

pytestmark = pytest.mark.slow
LATE = 60.0


class Shop:
    """Something of every kind, each waiting at a door."""

    def __init__(self, app: semel.App, doors: Doors) -> None:
        self.app, self.doors = app, doors
        self.fits = True

        @app.task(retry=1)
        async def once(value: str) -> str:
            return await doors.wait(value)

        @app.task
        async def thrice(value: str) -> str:
            return await doors.wait(value)

        @app.workflow
        async def process(ctx: semel.Context) -> list[str]:
            first = await ctx.step(doors.wait, "step", name="step")
            return [first, await ctx.execute_task(thrice, "child")]

        @app.workflow
        async def stumbles(ctx: semel.Context) -> str:
            await ctx.wait_signal("go")
            if not self.fits:
                raise semel.NonDeterminism("not this code")
            return "done"

        @app.entity
        class Account:
            total: int = 0

            @semel.handler
            async def add(self, ctx: semel.EntityContext, cents: int) -> int:
                await ctx.step(doors.wait, f"add {cents}", name="add")
                self.total += cents
                return self.total

        self.once, self.thrice, self.process, self.stumbles, self.account = once, thrice, process, stumbles, Account


def test_postgresql_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stop -m immediate`, with a server that leaves what nobody waits for in memory for ten seconds."""
    monkeypatch.setattr(flows, "PARKED_FIRST", 0.5)
    with fragile_postgres(wal_writer_delay="10000ms") as server:
        server.sql("create database semel")

        async def play() -> None:
            world = World("postgres", server.url("semel"))
            shop = Shop(world.app(auto_migrate=True), doors := Doors())
            app = shop.app
            account = app.entity(shop.account, "a")
            stumbler = await app.start_workflow(shop.stumbles, workflow_id="s")
            async with world.worker(app, lease="30s") as worker:
                shop.fits = False
                await stumbler.signal("go")
                thrice = await app.enqueue(shop.thrice, "thrice")
                flow = await app.start_workflow(shop.process, workflow_id="w")
                await account.send("add", 7)
                for name in ("thrice", "step", "add 7"):
                    await doors.until(name)

                async def parked() -> bool:
                    return (await world.sql("select count(*) from semel_flow where parked is not null"))[0][0] == 1

                await eventually(parked)
                once = await app.enqueue(shop.once, "once")  # last: whoever waits for the disk does so for all before
                await doors.until("once")
                await asyncio.to_thread(server.end, signal.SIGQUIT)
                await asyncio.to_thread(server.start)
                shop.fits = True
                doors.open("once", "thrice", "step", "add 7", "child", "add 1")
                assert await once.result(timeout=LATE) == "once"
                assert await thrice.result(timeout=LATE) == "thrice"
                assert await flow.result(timeout=LATE) == ["step", "child"]
                assert await account.ask("add", 1, timeout=LATE) == 8
                assert await stumbler.result(timeout=LATE) == "done"
                assert doors.reached.count("once") == 1
                assert doors.reached.count("thrice") <= 2
                await eventually(lambda: not worker.running)
                assert await world.count("semel_ready") == 0
            await world.close()

        asyncio.run(play())


class Disk:
    """What a SQLite file's disk has for certain: the write-ahead log as far as somebody waited for it."""

    def __init__(self, store: SqliteStore) -> None:
        self.store, self.log, self.synced = store, Path(f"{store.path}-wal"), 0

    def before(self, statement: str) -> None: ...

    def after(self, statement: str) -> None:
        """A commit that waited for the disk takes all before it along."""
        assert self.store._writer is not None
        if statement == "commit" and self.store._writer._level == "full":
            self.synced = self.log.stat().st_size

    def copy(self, target: Path) -> None:
        """The files as they are found after a power cut, at worst."""
        shutil.copy(self.store.path, target)
        Path(f"{target}-wal").write_bytes(self.log.read_bytes()[: self.synced])


async def test_the_power_fails_under_sqlite(tmp_path: Path) -> None:
    world = World("sqlite", f"sqlite:///{tmp_path}/semel.db")
    shop = Shop(world.app(), doors := Doors())
    await shop.app.queues()
    store: Any = shop.app.engine._store  # type: ignore[attr-defined]
    store.tap = disk = Disk(store)
    after = World("sqlite", f"sqlite:///{tmp_path}/after.db")
    try:
        async with world.worker(shop.app):
            await shop.app.enqueue(shop.thrice, "thrice", task_id="thrice")
            await doors.until("thrice")
            await shop.app.start_workflow(shop.process, workflow_id="w")
            await doors.until("step")
            await shop.app.entity(shop.account, "a").send("add", 7)
            await doors.until("add 7")
            await shop.app.enqueue(shop.once, "once", task_id="once")  # last: who waits for the disk does so for all
            await doors.until("once")
            disk.copy(tmp_path / "after.db")
            doors.open("once", "thrice", "step", "add 7", "child", "add 1")
        again = Shop(after.app(), doors)
        doors.reached.clear()
        async with after.worker(again.app):
            await after.advance("10m")
            thrice = await again.app.enqueue(again.thrice, "thrice", task_id="thrice")
            once = await again.app.find("once")
            assert once is not None
            flow = await again.app.start_workflow(again.process, workflow_id="w")
            assert thrice.duplicate
            assert flow.duplicate
            assert await thrice.result(timeout=SOON) == "thrice"
            assert await flow.result(timeout=SOON) == ["step", "child"]
            assert await ended(once) is semel.Status.FAILED
            assert await again.app.entity(again.account, "a").ask("add", 1, timeout=SOON) == 8
        assert "once" not in doors.reached
    finally:
        await world.close()
        await after.close()
