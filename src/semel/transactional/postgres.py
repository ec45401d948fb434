"""Connections to PostgreSQL: of psycopg 3, with and without await, of psycopg2 and of asyncpg.

No driver is imported here: whoever gives a connection has imported its driver.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from semel.errors import ConfigError, InvalidValue
from semel.transactional.caller_thread import CallerThread, complete
from semel.transactional.parameters import by_name, to_pyformat

T = TypeVar("T")
_IDLE, _FAILED = 0, 3
"""libpq's transaction status; both drivers give its numbers."""
NO_TRANSACTION: Final = (
    "the connection is a {kind} without an open transaction (autocommit): what is written on it could not be rolled "
    "back. {advice}."
)


class PostgresConnection:
    """What the drivers have in common."""

    dialect = "postgres"

    def __init__(self, raw: Any, kind: str) -> None:
        self.raw = raw
        self.kind = kind

    @property
    def driver_connection(self) -> object:
        """See CallerConnection."""
        return self.raw

    def set_clock(self, now: int) -> None:
        """See CallerConnection. PostgreSQL has its own."""


class AsyncpgConnection(PostgresConnection):
    """A connection of asyncpg, or what its pool gives."""

    @property
    def driver_connection(self) -> object:
        """See CallerConnection. Behind what a pool gives it is always the same."""
        return getattr(self.raw, "_con", None) or self.raw

    @property
    def in_transaction(self) -> bool:
        """See CallerConnection."""
        return bool(self.raw.is_in_transaction())

    async def enter(self) -> None:
        """InvalidValue: there is no transaction."""
        if not self.in_transaction:
            raise no_transaction(self.kind, "Put the call into: async with connection.transaction()")

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        return work()

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection."""
        if not args and sql.lstrip().startswith(("savepoint", "release", "rollback")):
            await self.raw.execute(sql)
            return []
        return [tuple(row) for row in await self.raw.fetch(sql, *args)]


class LibpqConnection(PostgresConnection):
    """What connections of psycopg 3 and psycopg2 have in common: they begin a transaction with the first statement."""

    @property
    def _status(self) -> int:
        raise NotImplementedError

    @property
    def in_transaction(self) -> bool:
        """See CallerConnection."""
        return self._status != _IDLE

    def check_transaction(self) -> None:
        """InvalidValue: no transaction is open, and none would be with the first statement; or it has failed."""
        if self._status == _IDLE and self.raw.autocommit:
            raise no_transaction(self.kind, "Begin one (psycopg 3: with connection.transaction())")
        if self._status == _FAILED:
            raise InvalidValue(f"connection= is a {self.kind} whose transaction has failed: roll it back first.")


class PsycopgConnection(LibpqConnection):
    """A connection of psycopg 3 without await."""

    def __init__(self, raw: Any, kind: str, thread: CallerThread) -> None:
        super().__init__(raw, kind)
        self._thread = thread
        self._cursors = _raw_cursors()

    @property
    def _status(self) -> int:
        return int(self.raw.info.transaction_status)

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        return self._thread.run(lambda: complete(work()))

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection."""
        with self._cursors.RawCursor(self.raw, row_factory=self._cursors.rows.tuple_row) as cursor:
            cursor.execute(sql, args or None)
            return cursor.fetchall() if cursor.description else []


class AsyncPsycopgConnection(LibpqConnection):
    """A connection of psycopg 3 with await."""

    def __init__(self, raw: Any, kind: str) -> None:
        super().__init__(raw, kind)
        self._cursors = _raw_cursors()

    @property
    def _status(self) -> int:
        return int(self.raw.info.transaction_status)

    async def enter(self) -> None:
        """See LibpqConnection.check_transaction."""
        self.check_transaction()

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        return work()

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection."""
        async with self._cursors.AsyncRawCursor(self.raw, row_factory=self._cursors.rows.tuple_row) as cursor:
            await cursor.execute(sql, args or None)
            return await cursor.fetchall() if cursor.description else []


class Psycopg2Connection(LibpqConnection):
    """A connection of psycopg2."""

    def __init__(self, raw: Any, kind: str, thread: CallerThread) -> None:
        super().__init__(raw, kind)
        self._thread = thread

    @property
    def _status(self) -> int:
        return int(self.raw.get_transaction_status())

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        return self._thread.run(lambda: complete(work()))

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection. A plain cursor, whatever the connection makes: rows are tuples."""
        with sys.modules["psycopg2"].extensions.cursor(self.raw) as cursor:
            cursor.execute(to_pyformat(sql), by_name(args))
            return [tuple(map(_to_bytes, row)) for row in cursor.fetchall()] if cursor.description else []


def no_transaction(kind: str, advice: str) -> InvalidValue:
    """The refusal of a connection on which nothing could be rolled back."""
    return InvalidValue(NO_TRANSACTION.format(kind=kind, advice=advice))


def _to_bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _raw_cursors() -> Any:
    """The module of psycopg 3, whose raw cursors take `$1` as it is."""
    psycopg = sys.modules["psycopg"]
    if not hasattr(psycopg, "RawCursor"):
        raise ConfigError(f"connection= needs psycopg 3.2 or newer, and this is {psycopg.__version__}.")
    return psycopg
