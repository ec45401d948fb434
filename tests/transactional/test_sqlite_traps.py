"""What is special about transactions on SQLite: one writer, late begins, and commits that nobody hears of."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from pathlib import Path

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy import orm, text

import semel
from semel.engines.sqlite import writer_thread
from tests.conftest import new_world
from tests.transactional.conftest import ORDERS
from tests.transactional.test_commit_and_start import shop
from tests.world import SOON, World


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return new_world("sqlite", tmp_path, request)


def path_of(world: World) -> str:
    return world.url.removeprefix("sqlite:///")


async def test_a_savepoint_before_any_write_is_refused_where_it_would_be_the_transaction(world: World) -> None:
    """SQLAlchemy as people have it: sqlite3 has not begun when the savepoint is set."""
    app, ship = shop(world)
    await app.migrate()
    await world.sql(ORDERS)

    def work() -> None:
        engine = sqlalchemy.create_engine(world.url)
        with orm.Session(engine) as session, session.begin():
            app.sync.enqueue(ship, 1, task_id="outside", connection=session)
            with session.begin_nested(), pytest.raises(semel.InvalidValue, match="in a savepoint on SQLite"):
                app.sync.enqueue(ship, 2, task_id="inside", connection=session)
            session.execute(text("insert into orders values (1)"))
        engine.dispose()

    await asyncio.to_thread(work)
    assert [one.key for one in await app.list()] == ["outside"]
    assert await world.count("orders") == 1
    app.sync.close()


async def test_a_transaction_that_has_read_cannot_write_once_another_has(world: World) -> None:
    """SQLite's own error, with what to do about it; the transaction can be rolled back and tried again."""
    app, ship = shop(world)
    await app.migrate()
    await world.sql(ORDERS)
    async with aiosqlite.connect(path_of(world), isolation_level=None) as connection:
        await connection.execute("begin")
        await (await connection.execute("select count(*) from orders")).fetchall()
        await world.sql("insert into orders values (7)")
        with pytest.raises(sqlite3.OperationalError) as caught:
            await app.enqueue(ship, 1, connection=connection)
        assert any("BEGIN IMMEDIATE" in note for note in caught.value.__notes__)
        await connection.rollback()
        await connection.execute("begin immediate")
        await app.enqueue(ship, 1, connection=connection)
        await connection.commit()
    assert await world.count() == 1


async def test_a_transaction_that_has_not_read_waits_for_the_writer(world: World) -> None:
    """Also a deferred one, such as Django's: Semel writes before it reads."""
    app, ship = shop(world)
    await app.migrate()
    await world.sql(ORDERS)
    async with aiosqlite.connect(path_of(world)) as writer, aiosqlite.connect(path_of(world)) as waiting:
        await writer.execute("insert into orders values (1)")
        await waiting.execute("begin deferred")
        started = asyncio.create_task(app.enqueue(ship, 1, task_id="order-1", connection=waiting))
        await asyncio.sleep(0.05)
        assert not started.done()
        await writer.commit()
        assert not (await asyncio.wait_for(started, SOON)).duplicate
        await waiting.commit()
    assert await world.count() == 1


async def test_a_start_without_the_connection_says_what_it_waits_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's own open transaction is the one writer: it would wait for itself for ever."""
    monkeypatch.setattr(writer_thread, "LOCK_PATIENCE", 0.3)
    app, ship = shop(world)
    await app.migrate()
    await world.sql(ORDERS)
    async with aiosqlite.connect(path_of(world)) as connection:
        await connection.execute("insert into orders values (1)")
        with pytest.raises(semel.EngineUnavailable, match="connection="):
            await asyncio.wait_for(app.enqueue(ship, 1), SOON)
        await app.enqueue(ship, 1, connection=connection)
        await connection.commit()
    assert await world.count() == 1


async def test_looking_at_executions_does_not_wait_for_an_open_transaction(world: World) -> None:
    """Neither does the first look of a process, which checks the tables."""
    app, ship = shop(world)
    await app.migrate()
    other, _ = shop(world)
    async with aiosqlite.connect(path_of(world)) as connection:
        handle = await app.enqueue(ship, 1, task_id="order-1", connection=connection)
        began = time.monotonic()
        with pytest.raises(semel.NotCommitted):
            await handle.status()
        assert await other.find("order-1") is None
        assert time.monotonic() - began < writer_thread.LOCK_PATIENCE / 2
        await connection.commit()
        assert await handle.status() == "pending"


async def test_a_file_that_is_not_in_wal_mode_is_not_opened_while_the_transaction_has_it(world: World) -> None:
    """As a dump restores it: to open it means to change its mode, for which the loop would wait for its own caller."""
    app, _ = shop(world)
    await app.migrate()
    await app.close()
    with contextlib.closing(sqlite3.connect(path_of(world))) as plain:
        assert plain.execute("pragma journal_mode = delete").fetchall() == [("delete",)]
    fresh, ship = shop(world)
    async with aiosqlite.connect(path_of(world)) as connection:
        began = time.monotonic()
        await fresh.enqueue(ship, 1, task_id="order-1", connection=connection)
        await asyncio.sleep(0.2)  # the commit is looked out for meanwhile, again and again
        await connection.commit()
        assert time.monotonic() - began < writer_thread.LOCK_PATIENCE / 2
    async with world.worker(fresh):
        handle = await fresh.find("order-1")
        assert handle is not None
        await handle.result("60s")


async def test_a_cursor_that_is_being_read_does_not_stand_in_the_way(world: World) -> None:
    app, ship = shop(world)
    await app.migrate()
    await world.sql(ORDERS)
    await world.sql("insert into orders values (1), (2), (3)")

    def work() -> None:
        with contextlib.closing(sqlite3.connect(path_of(world), isolation_level=None)) as connection:
            connection.execute("begin immediate")
            for (order,) in connection.execute("select id from orders"):
                app.sync.enqueue(ship, order, task_id=f"order-{order}", connection=connection)
            connection.execute("commit")

    await asyncio.to_thread(work)
    assert await world.count() == 3
    app.sync.close()


async def test_a_worker_hears_of_the_commit_without_its_slow_poll(world: World) -> None:
    """Ten one after another: by the poll alone they would take a second each."""
    app, ship = shop(world)
    async with world.worker(app), aiosqlite.connect(path_of(world)) as connection:
        took = []
        for number in range(10):
            handle = await app.enqueue(ship, number, connection=connection)
            await connection.commit()
            began = time.monotonic()
            assert await handle.result(SOON) == f"shipped {number}"
            took.append(time.monotonic() - began)
        assert sorted(took)[3] < 0.5, took
