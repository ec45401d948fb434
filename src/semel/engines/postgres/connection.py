"""One connection that comes back by itself, and the words for what can go wrong on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Container
from types import TracebackType
from typing import Final

import asyncpg

from semel.engine.failure_log import log_failure
from semel.engines.journal.script import Collision
from semel.engines.postgres.address import Address
from semel.engines.postgres.pool import shared_sessions
from semel.errors import EngineError, EngineUnavailable, MigrationNeeded, SemelError, phrase, phrase_with_type

log = logging.getLogger("semel.postgres")
PLANS: Final = {
    # Every statement is prepared once and keeps one plan: by index, joined row by row. Statistics that are
    # out of date, as in a table that is filled and emptied all the time, then cannot mislead it.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "jit": "off",
    "default_transaction_isolation": "read committed",
}
READ_ONLY: Final = "25006"
"""The server takes no writes: it is a standby, or was made read-only."""
IDLE_TOO_LONG: Final = "25P03"
STATEMENT_GONE: Final = ("26000", "42P05")
"""A statement that was prepared on this connection is not there, or is there already: something pools sessions."""
_AWAY: Final = ("08", "53", "57", "58", READ_ONLY, IDLE_TOO_LONG)
_BROKEN: Final = ("08", "57P", READ_ONLY, IDLE_TOO_LONG, *STATEMENT_GONE)
CANCEL_WITHIN: Final = 5.0
"""Seconds for the server to stop the statement of a connection that is given up."""
CLOSE_WITHIN: Final = 2.0
STATEMENT_WITHIN: Final = 5.0
"""Seconds for the statement of a connection that is suspected to carry nothing any more."""
LOST: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a statement meets on a connection that is being cut
    asyncpg.PostgresConnectionError,
    EOFError,
)


class PostgresConnection:
    """A connection for one purpose, opened on first use and again after it broke."""

    def __init__(self, address: Address, purpose: str, settings: dict[str, str]) -> None:
        self._address = address
        self._purpose = purpose
        self._settings = {**settings, "application_name": f"semel {purpose}"}
        self._connection: asyncpg.Connection | None = None
        self.opened = 0
        """How often a connection was opened."""
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        """Connections that were given up, until the server has let go of them as well."""

    @property
    def busy(self) -> bool:
        """Does someone use it now?"""
        return self._lock.locked()

    async def __aenter__(self) -> asyncpg.Connection:
        """The connection, for one at a time. Errors come out in Semel's words."""
        await self._lock.acquire()
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        try:
            self._connection = await self._address.connect(self._settings)
        except BaseException as error:
            self._lock.release()
            failure = translate(error)
            if failure is error:
                raise
            raise failure from error
        self.opened += 1
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if error is None:
            return
        if is_broken(error):
            self.drop()
        failure = translate(error)
        if failure is not error:
            raise failure from error

    def drop(self) -> None:
        """Forget the connection; the next use opens a new one. What still runs on it is cancelled in the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            closing = asyncio.create_task(close_bounded(connection, CANCEL_WITHIN))
            log_failure(closing, log, "a broken connection to PostgreSQL could not be closed")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    @property
    def ready(self) -> bool:
        """Is it open, as far as is known here?"""
        return self._connection is not None and not self._connection.is_closed()

    async def verify(self, patience: float, spare: Container[object]) -> None:
        """Give the connection up unless it answers: it may carry nothing any more without anybody having been told.

        One that somebody uses is given the time of a statement; one in `spare` is left alone.
        """
        try:
            async with asyncio.timeout(max(patience, STATEMENT_WITHIN)):
                await self._lock.acquire()
        except TimeoutError:
            connection = self._connection
            if connection is not None and connection not in spare:
                log.warning("a connection to PostgreSQL (%s) does not answer and is replaced", self._purpose)
                connection.terminate()  # who waits for it is told
            return
        try:
            if self._connection is not None and not self._connection.is_closed():
                async with asyncio.timeout(patience):
                    await self._connection.execute("select")
        except (TimeoutError, asyncpg.PostgresError, *LOST):
            log.warning("a connection to PostgreSQL (%s) does not answer and is replaced", self._purpose)
            self.drop()
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Close it properly, and do not wait for long for those that were given up before."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            await close_bounded(connection, CLOSE_WITHIN)
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_WITHIN)
            for late in self._closing:
                late.cancel()


async def close_bounded(connection: asyncpg.Connection, seconds: float) -> None:
    """Close a connection. What still runs on it is cancelled in the server first, or it would go on there."""
    with contextlib.suppress(*LOST, asyncpg.PostgresError):
        await connection.close(timeout=seconds)


def is_broken(error: BaseException) -> bool:
    """Is a connection of no more use after this error?

    Interrupted in the middle of a statement it is in an unknown state, and one to a server that takes no writes (a
    standby since a failover) must be replaced by one to a server that does.
    """
    if isinstance(error, (asyncio.CancelledError, GeneratorExit, EngineUnavailable, *LOST)):
        return True
    return str(getattr(error, "sqlstate", "")).startswith(_BROKEN)


def translate(error: BaseException) -> BaseException:
    """PostgreSQL's errors in Semel's words."""
    match error:
        case SemelError() | asyncio.CancelledError() | GeneratorExit():
            return error
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.UndefinedColumnError():
            return MigrationNeeded(f"the Semel tables are missing or old ({phrase(error)}). Run: semel migrate")
        case asyncpg.InvalidAuthorizationSpecificationError() | asyncpg.InvalidCatalogNameError():
            return EngineError(f"PostgreSQL refuses the connection: {phrase(error)}.")
        case asyncpg.InsufficientPrivilegeError():
            return EngineError(f"the database role may not do that: {phrase(error)}.")
        case asyncpg.UniqueViolationError():
            return Collision(f"PostgreSQL refused a statement: {phrase(error)}.")
        case asyncpg.TargetServerAttributeNotMatched():
            return EngineUnavailable("PostgreSQL takes no writes: the server is a standby, or was made read-only.")
        case asyncpg.PostgresError() if str(getattr(error, "sqlstate", "")).startswith(_AWAY):
            return EngineUnavailable(f"PostgreSQL cannot be used right now: {phrase(error)}.")
        case asyncpg.InvalidSQLStatementNameError() | asyncpg.DuplicatePreparedStatementError():
            return shared_sessions("PostgreSQL lost a prepared statement")
        case asyncpg.PostgresError():
            return EngineError(f"PostgreSQL refused a statement: {phrase(error)}.")
        case _ if isinstance(error, LOST):
            return EngineUnavailable(f"no answer from PostgreSQL ({phrase_with_type(error)}).")
        case _:
            return error
