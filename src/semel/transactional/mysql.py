"""Connections to MySQL and MariaDB: of PyMySQL, and of asyncmy, which is awaited. No driver is imported here."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from semel.transactional.caller_thread import CallerThread, complete
from semel.transactional.parameters import by_name, to_pyformat
from semel.transactional.postgres import no_transaction

T = TypeVar("T")
_IN_TRANSACTION: Final = 1
"""The server's status flag. A statement without rows brings it up to date; a query does not."""
_PING: Final = "do 0"


class MysqlConnection:
    """A connection of PyMySQL."""

    dialect = "mysql"

    def __init__(self, raw: Any, kind: str, thread: CallerThread | None) -> None:
        self.raw = raw
        self.kind = kind
        self._thread = thread

    @property
    def driver_connection(self) -> object:
        """See CallerConnection."""
        return self.raw

    @property
    def in_transaction(self) -> bool:
        """See CallerConnection."""
        return bool(self.raw.server_status & _IN_TRANSACTION)

    def check_transaction(self) -> None:
        """InvalidValue: no transaction is open, and none is begun by the first statement."""
        if self.raw.get_autocommit():
            complete(self.fetch(_PING, ()))
            if not self.in_transaction:
                raise no_transaction(self.kind, "Begin one with connection.begin()")

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        assert self._thread is not None
        return self._thread.run(lambda: complete(work()))

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection. A plain cursor, whatever the connection makes: rows are tuples."""
        cursor = _plain_cursor(self.raw)
        try:
            cursor.execute(to_pyformat(sql), by_name(args))
            return list(cursor.fetchall()) if cursor.description else [()] * max(0, cursor.rowcount)
        finally:
            cursor.close()

    def set_clock(self, now: int) -> None:
        """See CallerConnection. MySQL has its own."""


class AsyncmyConnection(MysqlConnection):
    """A connection of asyncmy."""

    def __init__(self, raw: Any, kind: str) -> None:
        super().__init__(raw, kind, None)

    @property
    def in_transaction(self) -> bool:
        """See CallerConnection."""
        return bool(self.raw.get_transaction_status())

    async def enter(self) -> None:
        """See MysqlConnection.check_transaction."""
        if self.raw.get_autocommit():
            await self.fetch(_PING, ())
            if not self.in_transaction:
                raise no_transaction(self.kind, "Begin one with await connection.begin()")

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        return work()

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection."""
        cursor = _plain_cursor(self.raw)
        try:
            await cursor.execute(to_pyformat(sql), by_name(args))
            return list(await cursor.fetchall()) if cursor.description else [()] * max(0, cursor.rowcount)
        finally:
            await cursor.close()


def _plain_cursor(raw: Any) -> Any:
    """A cursor of the driver's own plain kind."""
    package = type(raw).__module__.partition(".")[0]
    cursors = sys.modules[f"{package}.cursors"]
    return cursors.Cursor(raw)
