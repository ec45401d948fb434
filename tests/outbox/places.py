"""A database of the business with an outbox in it: one class for each, with the same few verbs."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiosqlite
import asyncpg

from semel.transactional.outbox.database import open_database, tables_sql
from semel.transactional.outbox.mysql import read_url

ORDERS = "create table orders (id integer primary key)"


class Place:
    """Where the business keeps its rows."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def prepare(self) -> None:
        """The tables."""
        database = open_database(self.url)
        await database.execute(tables_sql(database.dialect))
        await database.execute(ORDERS)
        await database.close()

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection with an open transaction: committed at the end, or rolled back if something is raised."""
        raise NotImplementedError

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Look at the tables, or change them."""
        raise NotImplementedError

    async def insert(self, connection: Any, number: int) -> None:
        """A row of the business."""
        await connection.execute(f"insert into orders (id) values ({number})")

    async def statuses(self) -> list[str]:
        """What became of the rows, in their order."""
        return [row[0] for row in await self.sql("select status from outbox_events order by id")]

    async def due_now(self) -> None:
        """Let the time pass until every row that waits for its next try may be tried."""
        await self.sql("update outbox_events set next_attempt_at = created_at where status = 'pending'")
        await self.sql("update outbox_destinations set retry_at = since")


class SqlitePlace(Place):
    @property
    def path(self) -> str:
        return self.url.removeprefix("sqlite:///")

    async def prepare(self) -> None:
        sqlite3.connect(self.path).close()
        await self.sql("pragma journal_mode = wal")
        await super().prepare()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with aiosqlite.connect(self.path, timeout=60) as connection:
            await connection.execute("begin immediate")
            try:
                yield connection
                await connection.commit()
            except BaseException:
                await connection.rollback()
                raise

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        async with aiosqlite.connect(self.path, timeout=60) as connection:
            found = await (await connection.execute(text)).fetchall()
            await connection.commit()
            return [tuple(row) for row in found]


class PostgresPlace(Place):
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(row) for row in await connection.fetch(text)]
        finally:
            await connection.close()


class MariadbPlace(Place):
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        import asyncmy

        connection = await asyncmy.connect(**self._options)
        await connection.begin()
        try:
            yield connection
            await connection.commit()
        except BaseException:
            await connection.rollback()
            raise
        finally:
            connection.close()

    async def insert(self, connection: Any, number: int) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute(f"insert into orders (id) values ({number})")

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        import pymysql

        with pymysql.connect(**self._options, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            return [tuple(row) for row in cursor.fetchall()]

    @property
    def _options(self) -> dict[str, Any]:
        return read_url(self.url)


PLACES: dict[str, type[Place]] = {"sqlite": SqlitePlace, "postgres": PostgresPlace, "mariadb": MariadbPlace}
