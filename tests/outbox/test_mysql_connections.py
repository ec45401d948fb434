"""Connections to MariaDB as people have them: PyMySQL, asyncmy, and SQLAlchemy over both."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncmy
import pymysql
import pymysql.cursors
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

import semel
from semel.transactional.outbox.mysql import read_url
from tests.outbox.conftest import new_place
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import World


@pytest.fixture
def mariadb(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return new_place("mariadb", tmp_path, request)


@contextlib.contextmanager
def plain(url: str, **options: Any) -> Any:
    with pymysql.connect(**read_url(url), **options) as connection:
        yield connection


def rows(place: Place) -> list[tuple[Any, ...]]:
    return asyncio.run(place.sql("select `key` from outbox_events order by id"))


async def in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


async def test_pymysql(world: World, mariadb: Place) -> None:
    shop = OutboxShop(world, mariadb)

    def work() -> None:
        with plain(mariadb.url, cursorclass=pymysql.cursors.DictCursor) as connection:
            start = shop.app.sync.enqueue
            for key, end in (("a", connection.rollback), ("b", connection.commit)):
                start(shop.ship, 1, task_id=key, connection=connection)
                end()
            start(shop.ship, 1, task_id="c", connection=connection)
            with connection.cursor() as cursor:
                cursor.execute("savepoint mine")
                start(shop.ship, 1, task_id="d", connection=connection)
                shop.app.sync.enqueue_many([(shop.ship.call(1), "e"), (shop.ship.call(2), "f")], connection=connection)
                cursor.execute("rollback to savepoint mine")
                start(shop.ship, 1, task_id="g", connection=cursor)
            connection.commit()
            assert semel.once_sync(connection, "k")
            assert not semel.once_sync(connection, "k")
            connection.rollback()
        with plain(mariadb.url, autocommit=True) as connection:
            with pytest.raises(semel.InvalidValue, match=r"connection\.begin"):
                start(shop.ship, 1, task_id="h", connection=connection)
            connection.begin()
            with connection.cursor() as cursor:
                cursor.execute("select 1")
            start(shop.ship, 1, task_id="i", connection=connection)
            connection.commit()

    await in_thread(work)
    shop.app.sync.close()
    assert await in_thread(lambda: rows(mariadb)) == [("b",), ("c",), ("g",), ("i",)]


async def test_asyncmy_in_autocommit(world: World, mariadb: Place) -> None:
    shop = OutboxShop(world, mariadb)
    connection = await asyncmy.connect(**read_url(mariadb.url), autocommit=True)
    try:
        with pytest.raises(semel.InvalidValue, match="begin"):
            await shop.app.enqueue(shop.ship, 1, task_id="a", connection=connection)
        await connection.begin()
        await shop.app.enqueue(shop.ship, 1, task_id="b", connection=connection)
        await connection.rollback()
        await connection.begin()
        await shop.app.enqueue(shop.ship, 1, task_id="c", connection=connection)
        await connection.commit()
    finally:
        connection.close()
    assert await mariadb.sql("select `key` from outbox_events") == [("c",)]


async def test_sqlalchemy_over_both(world: World, mariadb: Place) -> None:
    shop = OutboxShop(world, mariadb)
    address = mariadb.url.partition("://")[2]

    def work() -> None:
        engine = sqlalchemy.create_engine(f"mysql+pymysql://{address}")
        with orm.Session(engine) as session:
            for key, end in (("a", session.rollback), ("b", session.commit)):
                session.execute(sqlalchemy.text("select 1"))
                shop.app.sync.enqueue(shop.ship, 1, task_id=key, connection=session)
                end()
            with session.begin_nested() as nested:
                shop.app.sync.enqueue(shop.ship, 1, task_id="c", connection=session)
                nested.rollback()
            assert semel.once_sync(session, "k")
            assert not semel.once_sync(session, "k")
            session.commit()
        engine.dispose()

    await in_thread(work)
    shop.app.sync.close()
    engine = sa_async.create_async_engine(f"mysql+asyncmy://{address}")
    async with sa_async.AsyncSession(engine) as session:
        await shop.app.enqueue(shop.ship, 1, task_id="d", connection=session)
        await session.rollback()
        await shop.app.enqueue(shop.ship, 1, task_id="e", connection=session)
        await session.commit()
    await engine.dispose()
    assert await mariadb.sql("select `key` from outbox_events order by id") == [("b",), ("e",)]
