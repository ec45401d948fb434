"""Is there a pool between us and PostgreSQL, and does it give one session to several clients?"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import asyncpg

from semel.errors import EngineError

ROUNDS: Final = 3
ANSWER_WITHIN: Final = 3.0
"""Seconds for a second session. A pool that has none to give does not tell which kind it is."""
NO_TRANSACTIONS: Final = "statement pooling mode"
"""Part of what PgBouncer says to `begin` with pool_mode = statement."""


def shared_sessions(what: str) -> EngineError:
    """The error of a pool in transaction or statement mode."""
    return EngineError(
        f"{what}: something between Semel and the server, such as PgBouncer in transaction or statement mode, gives "
        "one session to several clients. Semel needs sessions of its own, for prepared statements, session settings "
        "and LISTEN: connect directly, or to a pool with pool_mode = session."
    )


async def is_pooled(connection: asyncpg.Connection) -> bool:
    """Does the server know this connection by another process than the one that answered at the door?"""
    return bool(connection.get_server_pid() != await _ask(connection))


async def refuse_shared_sessions(
    connection: asyncpg.Connection, connect: Callable[[], Awaitable[asyncpg.Connection]]
) -> None:
    """EngineError: a pool hands the session of this connection to others while the connection is open.

    A second connection asks for a session while the first one is not in a transaction. A pool in session mode never
    gives it that of the first; the other modes hand on what was used last, so three rounds find them also where other
    clients come in between. What they miss is noticed when a prepared statement is not there.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWER_WITHIN):
            other = await connect()
            try:
                for _ in range(ROUNDS):
                    if await _meet(connection, other):
                        raise shared_sessions("two connections to PostgreSQL got the same session")
            finally:
                other.terminate()


async def _meet(one: asyncpg.Connection, other: asyncpg.Connection) -> bool:
    """Has either of them a session that the other had, or another than before?"""
    try:
        first = await _session(one)
        await other.execute("begin")
        try:
            second = await _ask(other)
            third = await _session(one)
        finally:
            await other.execute("rollback")
    except asyncpg.PostgresError as error:
        if NO_TRANSACTIONS in str(error):
            return True
        raise
    return first == second or first != third


async def _session(connection: asyncpg.Connection) -> int:
    """The process of the server that serves a connection; asked in a transaction, which no pool tears apart."""
    await connection.execute("begin")
    try:
        return await _ask(connection)
    finally:
        await connection.execute("rollback")


async def _ask(connection: asyncpg.Connection) -> int:
    """Without a name for the statement: in a pool it would stay behind in a session that others get."""
    statement = await connection.prepare("select pg_backend_pid()", name="")
    return int(await statement.fetchval())
