"""Every kind of connection that people have, with the same few verbs: begin, insert, start, commit, roll back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg.rows
import psycopg2
import psycopg2.extras
import sqlalchemy
from sqlalchemy import event, orm
from sqlalchemy.ext import asyncio as sa_async

import semel

INSERT = "insert into orders (id) values ({})"


class Caller:
    """A connection of one kind, and an app. Savepoints are those of the driver or framework."""

    def __init__(self, url: str, app: semel.App) -> None:
        self.url = url
        self.app = app
        self.path = url.removeprefix("sqlite:///")
        self.given: Any = None
        """What is passed as `connection=`."""

    async def connect(self) -> None:
        raise NotImplementedError

    async def begin(self) -> None:
        """Most begin by themselves."""

    async def run(self, sql: str) -> None:
        raise NotImplementedError

    async def insert(self, number: int) -> None:
        """A row of the business."""
        await self.run(INSERT.format(number))

    async def call(self, verb: str, *args: Any, **options: Any) -> Any:
        """A verb of the app on this connection."""
        return await getattr(self.app, verb)(*args, connection=self.given, **options)

    async def start(self, *args: Any, **options: Any) -> Any:
        return await self.call("enqueue", *args, **options)

    async def savepoint(self) -> None:
        await self.run("savepoint mine")

    async def undo_savepoint(self) -> None:
        await self.run("rollback to savepoint mine")

    async def commit(self) -> None:
        await self.given.commit()

    async def rollback(self) -> None:
        await self.given.rollback()

    async def close(self) -> None:
        await self.given.close()


class InThread(Caller):
    """A kind without await: all in one thread of its own, with `app.sync`."""

    def __init__(self, url: str, app: semel.App) -> None:
        super().__init__(url, app)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)

    async def do(self, work: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def connect(self) -> None:
        self.given = await self.do(self.open)

    def open(self) -> Any:
        raise NotImplementedError

    async def run(self, sql: str) -> None:
        await self.do(self.execute, sql)

    def execute(self, sql: str) -> None:
        self.given.execute(sql)

    async def call(self, verb: str, *args: Any, **options: Any) -> Any:
        def work() -> Any:
            return getattr(self.app.sync, verb)(*args, connection=self.given, **options)

        return await self.do(work)

    async def commit(self) -> None:
        await self.do(lambda: self.given.commit())

    async def rollback(self) -> None:
        await self.do(lambda: self.given.rollback())

    async def close(self) -> None:
        await self.do(lambda: self.given.close())
        self._thread.shutdown()


# SQLite.


class Sqlite3(InThread):
    """As hostile as it can be: rows are dictionaries of sorts, text is bytes."""

    def open(self) -> Any:
        made = sqlite3.connect(self.path)
        made.row_factory = sqlite3.Row
        made.text_factory = bytes
        return made

    async def savepoint(self) -> None:
        await self.do(self._begin)
        await super().savepoint()

    def _begin(self) -> None:
        if not self.given.in_transaction:
            self.given.execute("begin immediate")


class Aiosqlite(Caller):
    async def connect(self) -> None:
        self.given = await aiosqlite.connect(self.path)
        self.given.row_factory = aiosqlite.Row

    async def run(self, sql: str) -> None:
        await self.given.execute(sql)

    async def savepoint(self) -> None:
        if not self.given.in_transaction:
            await self.run("begin immediate")
        await super().savepoint()


def begins_by_itself(engine: sqlalchemy.Engine) -> sqlalchemy.Engine:
    """As SQLAlchemy's documentation has it for savepoints on SQLite."""

    @event.listens_for(engine, "connect")
    def on_connect(raw: Any, record: Any) -> None:
        raw.isolation_level = None

    @event.listens_for(engine, "begin")
    def on_begin(connection: Any) -> None:
        connection.exec_driver_sql("begin immediate")

    return engine


class SqlalchemyKind(InThread):
    """A Session or a Connection."""

    scheme = ""
    session = True

    def open(self) -> Any:
        self.engine = sqlalchemy.create_engine(self.scheme + self.url.partition("://")[2])
        if self.engine.dialect.name == "sqlite":
            begins_by_itself(self.engine)
        return orm.Session(self.engine) if self.session else self.engine.connect()

    def execute(self, sql: str) -> None:
        self.given.execute(sqlalchemy.text(sql))

    async def savepoint(self) -> None:
        self.nested = await self.do(lambda: self.given.begin_nested())

    async def undo_savepoint(self) -> None:
        await self.do(lambda: self.nested.rollback())

    async def close(self) -> None:
        await self.do(lambda: (self.given.close(), self.engine.dispose()))
        self._thread.shutdown()


class SqlalchemyAsyncKind(Caller):
    """An AsyncSession or an AsyncConnection."""

    scheme = ""
    session = True

    async def connect(self) -> None:
        self.engine = sa_async.create_async_engine(self.scheme + self.url.partition("://")[2])
        if self.engine.dialect.name == "sqlite":
            begins_by_itself(self.engine.sync_engine)
        self.given = sa_async.AsyncSession(self.engine) if self.session else await self.engine.connect()

    async def run(self, sql: str) -> None:
        await self.given.execute(sqlalchemy.text(sql))

    async def savepoint(self) -> None:
        self.nested = await self.given.begin_nested()

    async def undo_savepoint(self) -> None:
        await self.nested.rollback()

    async def close(self) -> None:
        await self.given.close()
        await self.engine.dispose()


class SessionSqlite(SqlalchemyKind):
    scheme = "sqlite://"


class ConnectionSqlite(SqlalchemyKind):
    scheme = "sqlite://"
    session = False


class AsyncSessionSqlite(SqlalchemyAsyncKind):
    scheme = "sqlite+aiosqlite://"


class AsyncConnectionSqlite(SqlalchemyAsyncKind):
    scheme = "sqlite+aiosqlite://"
    session = False


class Django(InThread):
    """`django.db.connection` in `transaction.atomic()`, whichever database is below."""

    def open(self) -> Any:
        from tests.transactional.django_site import connection_to

        self._connection, self._atomic = connection_to(self.url)
        return self._connection

    def execute(self, sql: str) -> None:
        self._enter()
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def _enter(self) -> None:
        if not self._connection.in_atomic_block:
            self._blocks = contextlib.ExitStack()
            self._blocks.enter_context(self._atomic(using=self._connection.alias))

    async def begin(self) -> None:
        await self.do(self._enter)

    async def start(self, *args: Any, **options: Any) -> Any:
        await self.do(self._enter)
        return await super().start(*args, **options)

    async def savepoint(self) -> None:
        def work() -> None:
            self._enter()
            self._inner = self._atomic(using=self._connection.alias)
            self._inner.__enter__()

        await self.do(work)

    async def undo_savepoint(self) -> None:
        error = RuntimeError("undo")
        await self.do(lambda: self._inner.__exit__(RuntimeError, error, None))

    async def commit(self) -> None:
        await self.do(lambda: self._blocks.close())

    async def rollback(self) -> None:
        def work() -> None:
            if self._connection.in_atomic_block:
                self._connection.set_rollback(True)
                self._blocks.close()

        await self.do(work)

    async def close(self) -> None:
        await self.rollback()
        await super().close()


# PostgreSQL.


class Psycopg(InThread):
    def open(self) -> Any:
        return psycopg.connect(self.url, row_factory=psycopg.rows.dict_row)


class PsycopgCursor(Psycopg):
    """A cursor instead of its connection, which is in autocommit with a transaction block."""

    def open(self) -> Any:
        self._made = psycopg.connect(self.url, autocommit=True)
        return self._made.cursor()

    async def begin(self) -> None:
        def work() -> None:
            self._block = self._made.transaction()
            self._block.__enter__()

        await self.do(work)

    async def commit(self) -> None:
        await self.do(lambda: self._block.__exit__(None, None, None))

    async def rollback(self) -> None:
        await self.do(lambda: self._block.__exit__(psycopg.Rollback, psycopg.Rollback(), None))

    async def close(self) -> None:
        await self.do(lambda: self._made.close())
        self._thread.shutdown()


class AsyncPsycopg(Caller):
    async def connect(self) -> None:
        self.given = await psycopg.AsyncConnection.connect(self.url, row_factory=psycopg.rows.dict_row)

    async def run(self, sql: str) -> None:
        await self.given.execute(sql)


class Psycopg2(InThread):
    def open(self) -> Any:
        return psycopg2.connect(self.url, cursor_factory=psycopg2.extras.RealDictCursor)

    def execute(self, sql: str) -> None:
        with self.given.cursor() as cursor:
            cursor.execute(sql)


class Asyncpg(Caller):
    async def connect(self) -> None:
        self.given = await asyncpg.connect(self.url)
        self._block: Any = None

    async def begin(self) -> None:
        self._block = self.given.transaction()
        await self._block.start()

    async def run(self, sql: str) -> None:
        await self.given.execute(sql)

    async def commit(self) -> None:
        await self._block.commit()

    async def rollback(self) -> None:
        await self._block.rollback()


class AsyncpgPool(Asyncpg):
    async def connect(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.given = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.given)
        await self._pool.close()


class SessionPsycopg(SqlalchemyKind):
    scheme = "postgresql+psycopg://"


class ConnectionPsycopg(SqlalchemyKind):
    scheme = "postgresql+psycopg://"
    session = False


class SessionPsycopg2(SqlalchemyKind):
    scheme = "postgresql+psycopg2://"


class AsyncSessionAsyncpg(SqlalchemyAsyncKind):
    scheme = "postgresql+asyncpg://"


class AsyncConnectionAsyncpg(SqlalchemyAsyncKind):
    scheme = "postgresql+asyncpg://"
    session = False


class AsyncSessionPsycopg(SqlalchemyAsyncKind):
    scheme = "postgresql+psycopg://"


class DjangoPostgres(Django):
    """The same on PostgreSQL."""


KINDS: dict[str, list[type[Caller]]] = {
    "sqlite": [
        Sqlite3,
        Aiosqlite,
        SessionSqlite,
        ConnectionSqlite,
        AsyncSessionSqlite,
        AsyncConnectionSqlite,
        Django,
    ],
    "postgres": [
        Psycopg,
        PsycopgCursor,
        AsyncPsycopg,
        Psycopg2,
        Asyncpg,
        AsyncpgPool,
        SessionPsycopg,
        ConnectionPsycopg,
        SessionPsycopg2,
        AsyncSessionAsyncpg,
        AsyncConnectionAsyncpg,
        AsyncSessionPsycopg,
        DjangoPostgres,
    ],
}
