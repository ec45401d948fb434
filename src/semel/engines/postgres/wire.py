"""One connection that comes back by itself, and the words for what can go wrong on it."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Final

import asyncpg

from semel.engines.journal.script import Collision
from semel.errors import EngineError, EngineUnavailable, MigrationNeeded, SemelError

CONNECT_TIMEOUT: Final = 10.0
COMMAND_TIMEOUT: Final = 60.0
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
_AWAY: Final = ("08", "53", "57", "58")
LOST: Final = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what a statement meets on a connection that is being cut
    asyncpg.PostgresConnectionError,
    EOFError,
)


class Wire:
    """A connection for one purpose, opened on first use and again after it broke."""

    def __init__(self, url: str, purpose: str, settings: dict[str, str]) -> None:
        self._url = url
        self._settings = {**settings, "application_name": f"semel {purpose}"}
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()

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
            self._connection = await connect(self._url, self._settings)
        except BaseException as error:
            self._lock.release()
            failure = translate(error)
            if failure is error:
                raise
            raise failure from error
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        if error is None:
            return
        # A statement that was interrupted leaves the connection in an unknown state.
        if isinstance(error, (asyncio.CancelledError, GeneratorExit, EngineUnavailable, *LOST)):
            self.drop()
        failure = translate(error)
        if failure is not error:
            raise failure from error

    def drop(self) -> None:
        """Forget the connection; the next use opens a new one."""
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.terminate()
            self._connection = None

    async def close(self) -> None:
        """Close it properly."""
        if self._connection is not None and not self._connection.is_closed():
            with contextlib.suppress(*LOST, asyncpg.PostgresError):
                await self._connection.close(timeout=2)
        self._connection = None


async def connect(url: str, settings: dict[str, str]) -> asyncpg.Connection:
    """A connection with these session settings."""
    try:
        return await asyncpg.connect(
            url, server_settings=settings, statement_cache_size=200, max_cached_statement_lifetime=0,
            timeout=CONNECT_TIMEOUT, command_timeout=COMMAND_TIMEOUT,
        )  # fmt: skip
    except asyncpg.PostgresError as error:
        if "startup parameter" in str(error):
            raise EngineError(
                f"the server at the other end refuses session settings ({error}): it looks like PgBouncer. Semel keeps "
                "prepared statements and listens, so connect to PostgreSQL directly or to a pool in session "
                "mode (for PgBouncer also set ignore_startup_parameters)."
            ) from error
        raise


def translate(error: BaseException) -> BaseException:
    """PostgreSQL's errors in Semel's words."""
    match error:
        case SemelError() | asyncio.CancelledError() | GeneratorExit():
            return error
        case asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError() | asyncpg.UndefinedColumnError():
            return MigrationNeeded(f"the Semel tables are missing or old ({error}). Run: semel migrate")
        case asyncpg.InvalidAuthorizationSpecificationError() | asyncpg.InvalidCatalogNameError():
            return EngineError(f"PostgreSQL refuses the connection: {error}.")
        case asyncpg.InsufficientPrivilegeError():
            return EngineError(f"the database role may not do that: {error}.")
        case asyncpg.UniqueViolationError():
            return Collision(f"PostgreSQL refused a statement: {error}.")
        case asyncpg.PostgresError() if str(getattr(error, "sqlstate", "")).startswith(_AWAY):
            return EngineUnavailable(f"PostgreSQL cannot be used right now: {error}.")
        case asyncpg.PostgresError():
            return EngineError(f"PostgreSQL refused a statement: {error}.")
        case _ if isinstance(error, LOST):
            return EngineUnavailable(f"no answer from PostgreSQL ({type(error).__name__}: {error}).")
        case _:
            return error
