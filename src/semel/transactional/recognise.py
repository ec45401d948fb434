"""From what people have at hand, a Session, a connection, a cursor, to a connection that an engine can use.

Types are known by their names: nothing is imported that the caller has not imported. Those with await go with `app`,
those without with `app.sync`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from semel.engine.caller_connection import CallerConnection
from semel.errors import InvalidValue
from semel.transactional.caller_thread import CallerThread, calling_thread
from semel.transactional.mysql import AsyncmyConnection, MysqlConnection
from semel.transactional.postgres import (
    AsyncpgConnection,
    AsyncPsycopgConnection,
    LibpqConnection,
    Psycopg2Connection,
    PsycopgConnection,
    no_transaction,
)
from semel.transactional.sqlite import AiosqliteConnection, SqliteConnection

KNOWN: Final = (
    "a SQLAlchemy Session, AsyncSession, Connection or AsyncConnection, Django's connection, or a connection of "
    "psycopg, psycopg2, asyncpg, sqlite3, aiosqlite, PyMySQL or asyncmy"
)
_SAVEPOINT_AT_RISK: Final = (
    "connection= is a SQLAlchemy {kind} in a savepoint on SQLite. Python's sqlite3 begins its transaction with the "
    "first write, so a savepoint before that is the transaction itself, and what is in it would stay after a rollback. "
    "Let SQLAlchemy begin it: on the engine's event 'connect' set dbapi_connection.isolation_level = None, on its "
    "event 'begin' run conn.exec_driver_sql('BEGIN IMMEDIATE')."
)


async def recognise(given: Any) -> CallerConnection:
    """The connection with its transaction. InvalidValue: it cannot be used, or not here, or has no transaction."""
    name = name_of(given)
    thread = calling_thread()
    if (resolve := _WITH_AWAIT.get(name)) is not None:
        if thread is not None:
            raise InvalidValue(f"connection= is a {name}, which is awaited: use it with app, not with app.sync.")
        return await resolve(given, name)
    if (resolve_sync := _WITHOUT_AWAIT.get(name)) is not None:
        if thread is None:
            raise InvalidValue(f"connection= is a {name}, which is not awaited: use it with app.sync, not with app.")
        serving = thread
        return await serving.run(lambda: resolve_sync(given, name, serving))
    raise _unknown(given)


def recognise_sync(given: Any) -> CallerConnection:
    """The same for a connection without await, to be used in this thread and nowhere else."""
    name = name_of(given)
    if name in _WITH_AWAIT:
        raise InvalidValue(f"connection= is a {name}, which is awaited: use the verb that is awaited as well.")
    if (resolve := _WITHOUT_AWAIT.get(name)) is None:
        raise _unknown(given)
    return resolve(given, name, CallerThread())


def _unknown(given: object) -> InvalidValue:
    shown = type(given)
    return InvalidValue(f"connection= is a {shown.__module__}.{shown.__qualname__}: give {KNOWN}.")


def name_of(given: object) -> str:
    """The name of the first known type among its own and those it inherits from; empty if there is none."""
    for kind in type(given).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
        if name in _WITH_AWAIT or name in _WITHOUT_AWAIT:
            return name
    return ""


# With await.


async def _asyncpg(given: Any, name: str) -> CallerConnection:
    found = AsyncpgConnection(given, name)
    await found.enter()
    return found


async def _async_psycopg(given: Any, name: str) -> CallerConnection:
    found = AsyncPsycopgConnection(getattr(given, "connection", given), name)
    await found.enter()
    return found


async def _aiosqlite(given: Any, name: str) -> CallerConnection:
    found = AiosqliteConnection(given, name)
    await found.enter()
    return found


async def _asyncmy(given: Any, name: str) -> CallerConnection:
    found = AsyncmyConnection(getattr(given, "connection", given), name)
    await found.enter()
    return found


async def _async_sqlalchemy(given: Any, name: str) -> CallerConnection:
    """The driver's connection below it. SQLAlchemy tells some drivers to begin only with its first statement."""
    connection = given if name == "sqlalchemy.AsyncConnection" else await given.connection()
    _refuse_risky_savepoint(connection.sync_connection, name)
    await connection.exec_driver_sql("select 1")
    raw = (await connection.get_raw_connection()).driver_connection
    inner = name_of(raw)
    if inner not in _WITH_AWAIT:
        raise _unknown_driver(name, raw)
    return await _WITH_AWAIT[inner](raw, name)


# Without await. These run in the thread of the caller.


def _psycopg(given: Any, name: str, thread: CallerThread) -> CallerConnection:
    return _checked(PsycopgConnection(getattr(given, "connection", given), name, thread))


def _psycopg2(given: Any, name: str, thread: CallerThread) -> CallerConnection:
    return _checked(Psycopg2Connection(getattr(given, "connection", given), name, thread))


def _checked(found: LibpqConnection) -> CallerConnection:
    found.check_transaction()
    return cast(CallerConnection, found)


def _sqlite3(given: Any, name: str, thread: CallerThread) -> CallerConnection:
    found = SqliteConnection(getattr(given, "connection", given), name, thread)
    found.begin()
    return found


def _pymysql(given: Any, name: str, thread: CallerThread) -> CallerConnection:
    found = MysqlConnection(getattr(given, "connection", given), name, thread)
    found.check_transaction()
    return found


def _sqlalchemy(given: Any, name: str, thread: CallerThread) -> CallerConnection:
    connection = given if name == "sqlalchemy.Connection" else given.connection()
    _refuse_risky_savepoint(connection, name)
    connection.exec_driver_sql("select 1")
    raw = connection.connection.driver_connection
    inner = name_of(raw)
    if inner not in _WITHOUT_AWAIT:
        raise _unknown_driver(name, raw)
    return _WITHOUT_AWAIT[inner](raw, name, thread)


def _django(given: Any, name: str, thread: CallerThread) -> CallerConnection:
    given.ensure_connection()
    given.validate_no_broken_transaction()
    if not given.in_atomic_block and given.get_autocommit():
        raise no_transaction("Django connection", "Put the call into: with transaction.atomic()")
    raw = given.connection
    inner = name_of(raw)
    if inner not in _WITHOUT_AWAIT:
        raise _unknown_driver("Django connection", raw)
    return _WITHOUT_AWAIT[inner](raw, "Django connection", thread)


def _refuse_risky_savepoint(connection: Any, name: str) -> None:
    """A savepoint that may have been set before sqlite3 has begun a transaction: nobody can tell afterwards."""
    if connection.dialect.name != "sqlite" or not connection.in_nested_transaction():
        return
    raw = connection.connection.dbapi_connection
    raw = getattr(raw, "driver_connection", raw)
    raw = getattr(raw, "_conn", raw)
    if raw.isolation_level is not None and getattr(raw, "autocommit", -1) == -1:
        raise InvalidValue(_SAVEPOINT_AT_RISK.format(kind=name.partition(".")[2]))


def _unknown_driver(name: str, raw: object) -> InvalidValue:
    shown = type(raw)
    return InvalidValue(
        f"connection= is a {name} over {shown.__module__}.{shown.__qualname__}: Semel can use psycopg, psycopg2, "
        "asyncpg, sqlite3, aiosqlite, PyMySQL and asyncmy below it."
    )


_WITH_AWAIT: Final[dict[str, Callable[[Any, str], Awaitable[CallerConnection]]]] = {
    "asyncpg.Connection": _asyncpg,
    "asyncpg.PoolConnectionProxy": _asyncpg,
    "psycopg.AsyncConnection": _async_psycopg,
    "psycopg.AsyncCursor": _async_psycopg,
    "aiosqlite.Connection": _aiosqlite,
    "asyncmy.Connection": _asyncmy,
    "asyncmy.Cursor": _asyncmy,
    "sqlalchemy.AsyncSession": _async_sqlalchemy,
    "sqlalchemy.async_scoped_session": _async_sqlalchemy,
    "sqlalchemy.AsyncConnection": _async_sqlalchemy,
}
_WITHOUT_AWAIT: Final[dict[str, Callable[[Any, str, CallerThread], CallerConnection]]] = {
    "psycopg.Connection": _psycopg,
    "psycopg.Cursor": _psycopg,
    "psycopg2.connection": _psycopg2,
    "psycopg2.cursor": _psycopg2,
    "sqlite3.Connection": _sqlite3,
    "sqlite3.Cursor": _sqlite3,
    "pymysql.Connection": _pymysql,
    "pymysql.Cursor": _pymysql,
    "sqlalchemy.Session": _sqlalchemy,
    "sqlalchemy.scoped_session": _sqlalchemy,
    "sqlalchemy.Connection": _sqlalchemy,
    "django.BaseDatabaseWrapper": _django,
    "django.ConnectionProxy": _django,
}
