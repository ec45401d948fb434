"""Connections that cannot be used are refused with what to do instead, before anything is written."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy import orm

import semel
from semel.engines.temporal.engine import TEMPORAL
from tests.conftest import new_world
from tests.transactional.test_commit_and_start import shop
from tests.world import World


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return new_world("sqlite", tmp_path, request)


def in_thread(work: Callable[[], Any]) -> Any:
    return asyncio.to_thread(work)


async def test_a_connection_goes_with_the_face_of_its_kind(world: World) -> None:
    app, ship = shop(world)
    await app.migrate()
    path = world.url.removeprefix("sqlite:///")
    with contextlib.closing(sqlite3.connect(path)) as plain, pytest.raises(semel.InvalidValue, match=r"with app\.sync"):
        await app.enqueue(ship, 1, connection=plain)
    async with aiosqlite.connect(path) as awaited:
        with pytest.raises(semel.InvalidValue, match=r"with app, not with app\.sync"):
            await in_thread(lambda: app.sync.enqueue(ship, 1, connection=awaited))
    with pytest.raises(semel.InvalidValue, match=r"builtins\.str: give a SQLAlchemy Session"):
        await app.enqueue(ship, 1, connection="postgresql://")
    engine = sqlalchemy.create_engine(world.url)
    with pytest.raises(semel.InvalidValue, match="Engine: give"):
        await app.enqueue(ship, 1, connection=engine)
    assert await world.count() == 0
    app.sync.close()


async def test_without_a_transaction_it_is_refused_on_sqlite(world: World) -> None:
    app, ship = shop(world)
    await app.migrate()
    path = world.url.removeprefix("sqlite:///")

    def work() -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            with pytest.raises(semel.InvalidValue, match="BEGIN IMMEDIATE"):
                app.sync.enqueue(ship, 1, connection=connection)
            connection.execute("begin immediate")
            app.sync.enqueue(ship, 2, connection=connection)
            connection.execute("commit")
        engine = sqlalchemy.create_engine(world.url, isolation_level="AUTOCOMMIT")
        with orm.Session(engine) as session, pytest.raises(semel.InvalidValue, match="without an open transaction"):
            app.sync.enqueue(ship, 3, connection=session)
        engine.dispose()

    await in_thread(work)
    assert await world.count() == 1
    app.sync.close()


async def test_without_a_transaction_it_is_refused_on_postgres(postgres_world: World) -> None:
    app, ship = shop(postgres_world)
    url = postgres_world.url
    connection = await asyncpg.connect(url)
    with pytest.raises(semel.InvalidValue, match=r"connection\.transaction\(\)"):
        await app.enqueue(ship, 1, connection=connection)
    await connection.close()

    def work() -> None:
        with psycopg.connect(url, autocommit=True) as made:
            with pytest.raises(semel.InvalidValue, match="without an open transaction"):
                app.sync.enqueue(ship, 1, connection=made)
            with made.transaction(), contextlib.suppress(psycopg.Error):
                made.execute("select 1 / 0")
            with made.transaction():
                with contextlib.suppress(psycopg.Error):
                    made.execute("select 1 / 0")
                with pytest.raises(semel.InvalidValue, match="roll it back first"):
                    app.sync.enqueue(ship, 1, connection=made)
        with contextlib.closing(psycopg2.connect(url)) as other:
            other.autocommit = True
            with pytest.raises(semel.InvalidValue, match="without an open transaction"):
                app.sync.enqueue(ship, 1, connection=other)
            other.autocommit = False  # idle, but the first statement begins a transaction
            app.sync.enqueue(ship, 1, connection=other)
            other.commit()

    with contextlib.suppress(psycopg.Error):
        await in_thread(work)
    assert await postgres_world.count() == 1
    app.sync.close()


async def test_another_database_without_an_outbox_is_refused_and_both_are_named(
    world: World, postgres_world: World, tmp_path: Path
) -> None:
    app, ship = shop(world)
    await app.migrate()
    elsewhere, _ = shop(postgres_world)
    async with aiosqlite.connect(tmp_path / "other.db") as other, aiosqlite.connect(":memory:") as memory:
        for connection, name in ((other, "other.db"), (memory, "in memory")):
            with pytest.raises(semel.MigrationNeeded, match=rf"{name}.*semel\.db.*semel outbox init"):
                await app.enqueue(ship, 1, connection=connection)
        with pytest.raises(semel.MigrationNeeded, match=r"other\.db.*postgresql://"):
            await elsewhere.enqueue(ship, 1, connection=other)
    connection = await asyncpg.connect(postgres_world.url.rpartition("/")[0] + "/postgres")
    async with connection.transaction():
        with pytest.raises(semel.MigrationNeeded, match=r"'postgres'.*postgresql://"):
            await elsewhere.enqueue(ship, 1, connection=connection)
        with pytest.raises(semel.MigrationNeeded, match=r"'postgres'.*semel\.db"):
            await app.enqueue(ship, 1, connection=connection)
        assert await connection.fetchval("select 1") == 1  # the transaction is as it was
    await connection.close()


async def test_a_file_is_known_by_what_it_is_and_not_by_its_name(world: World, tmp_path: Path) -> None:
    app, ship = shop(world)
    await app.migrate()
    (tmp_path / "link.db").symlink_to(world.url.removeprefix("sqlite:///"))
    async with aiosqlite.connect(tmp_path / "link.db") as connection:
        await app.enqueue(ship, 1, connection=connection)
        await connection.commit()
    assert await world.count() == 1


async def test_missing_tables_are_not_made_inside_the_transaction(world: World, tmp_path: Path) -> None:
    world.url = f"sqlite:///{tmp_path}/no_tables.db"
    app, ship = shop(world)
    async with aiosqlite.connect(world.url.removeprefix("sqlite:///")) as connection:
        await connection.execute("create table orders (id)")
        await connection.execute("insert into orders values (1)")
        with pytest.raises(semel.MigrationNeeded, match=r"app\.migrate"):
            await app.enqueue(ship, 1, connection=connection)
        await connection.commit()
        await app.migrate()
        await app.enqueue(ship, 1, connection=connection)
        await connection.commit()
    assert await world.count() == 1


def test_temporal_takes_part_in_no_transaction() -> None:
    assert not TEMPORAL.joins_transactions

    async def main() -> None:
        app = semel.App("temporal://127.0.0.1:1/none", config=None)

        @app.task
        async def ship(order: int) -> None: ...

        async with aiosqlite.connect(":memory:") as connection:
            with pytest.raises(semel.MigrationNeeded, match=r"engine is temporal://.*semel outbox init"):
                await app.enqueue(ship, 1, connection=connection)
        await app.close()

    asyncio.run(main())


def test_no_driver_is_imported_that_nobody_has_imported() -> None:
    drivers = ["psycopg", "psycopg2", "aiosqlite", "sqlalchemy", "django", "asyncpg", "pymysql", "asyncmy"]
    code = f"import sys, semel.app, semel.transactional.recognise; print([d for d in {drivers} if d in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


async def test_an_engine_that_was_not_migrated_is_not_taken_for_another_database(postgres_world: World) -> None:
    """With the same name it may be the engine's own: an outbox there would not be relayed by anybody."""
    name = postgres_world.url.rpartition("/")[2]
    app = semel.App(postgres_world.url, config=None)

    @app.task
    def ship(order: int) -> None: ...

    connection = await asyncpg.connect(postgres_world.url)
    try:
        await connection.execute("drop schema public cascade; create schema public")
        async with connection.transaction():
            with pytest.raises(semel.MigrationNeeded, match=rf"'{name}'.*own database, run instead: semel migrate"):
                await app.enqueue(ship, 1, connection=connection)
    finally:
        await connection.close()
        await app.close()
