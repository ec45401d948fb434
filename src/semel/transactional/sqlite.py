"""Connections to SQLite: of Python's own `sqlite3`, and of aiosqlite, which has one in a thread of its own."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from semel.transactional.caller_thread import CallerThread, complete
from semel.transactional.postgres import no_transaction

T = TypeVar("T")
_LEGACY: Final = -1
"""`autocommit` of a connection that has `isolation_level` instead; Pythons before 3.12 know nothing else."""
_BUSY: Final = 5
_STALE: Final = (
    "Semel was about to write in your transaction. One that began with a read cannot write any more once somebody else "
    "has: begin it with BEGIN IMMEDIATE."
)
_clock: Final = threading.local()


class SqliteConnection:
    """A connection of `sqlite3`."""

    dialect = "sqlite"

    def __init__(self, raw: sqlite3.Connection, kind: str, thread: CallerThread | None) -> None:
        self.raw = raw
        self.kind = kind
        self._thread = thread

    @property
    def driver_connection(self) -> object:
        """See CallerConnection."""
        return self.raw

    @property
    def in_transaction(self) -> bool:
        """See CallerConnection. One that was closed has none."""
        try:
            return self.raw.in_transaction
        except sqlite3.ProgrammingError:
            return False

    def begin(self) -> None:
        """Begin the transaction that the driver would begin with the first write, so that it can write at once.

        InvalidValue: no transaction is open, and the driver begins none by itself.
        """
        if self.raw.in_transaction:
            return
        legacy = getattr(self.raw, "autocommit", _LEGACY) == _LEGACY
        if not legacy or self.raw.isolation_level is None:
            raise no_transaction(self.kind, "Begin one with BEGIN IMMEDIATE")
        sqlite3.Cursor(self.raw).execute("begin immediate")

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        assert self._thread is not None
        return self._thread.run(lambda: self._play(work))

    def _play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """In the thread of the connection. Its own way to read text is put aside meanwhile."""
        text_factory, self.raw.text_factory = self.raw.text_factory, str
        try:
            return complete(work())
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == _BUSY:
                error.add_note(_STALE)
            raise
        finally:
            self.raw.text_factory = text_factory

    async def fetch(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        """See CallerConnection. A plain cursor, whatever the connection makes: rows are tuples."""
        cursor = sqlite3.Cursor(self.raw)
        try:
            return cursor.execute(sql, args).fetchall()
        finally:
            cursor.close()

    def set_clock(self, now: int) -> None:
        """See CallerConnection. The function is made known once: that is not possible while a cursor is being read."""
        _clock.now = now
        try:
            sqlite3.Cursor(self.raw).execute("select semel_now()")
        except sqlite3.OperationalError:
            self.raw.create_function("semel_now", 0, _tell_now, deterministic=True)


class AiosqliteConnection(SqliteConnection):
    """A connection of aiosqlite. What is played on it runs in its thread, in one piece."""

    def __init__(self, raw: Any, kind: str) -> None:
        super().__init__(raw._conn, kind, None)
        self._outer = raw

    async def enter(self) -> None:
        """See SqliteConnection.begin."""
        await self._outer._execute(self.begin)

    def play(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        """See CallerConnection."""
        played: Awaitable[T] = self._outer._execute(self._play, work)
        return played


def _tell_now() -> int:
    """The time of the script that runs in this thread, or that of the machine."""
    now: int = getattr(_clock, "now", 0) or int(time.time() * 1_000_000)
    return now
