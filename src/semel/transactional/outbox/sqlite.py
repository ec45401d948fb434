"""An outbox in a SQLite file, on Python's own `sqlite3`."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from semel.errors import EngineError, EngineUnavailable, phrase_with_type
from semel.transactional.outbox.database import no_outbox
from semel.transactional.outbox.threaded import DRIVER_SHARE, ThreadedOutbox
from semel.transactional.statements import Row


class SqliteOutbox(ThreadedOutbox):
    """See OutboxDatabase."""

    dialect = "sqlite"

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__(f"sqlite:///{path}", timeout)
        self._path = path

    def begin(self, write: bool) -> str:
        """A transaction that began with a read could not write any more once somebody else has."""
        return "begin immediate" if write else "begin"

    def connect(self) -> sqlite3.Connection:
        """See ThreadedOutbox. A file that is not there is not made: it would be one without the caller's rows."""
        if not Path(self._path).exists():
            raise EngineUnavailable(f"there is no database file {self._path!r}.")
        patience = self.timeout * DRIVER_SHARE
        return sqlite3.connect(self._path, timeout=patience, isolation_level=None, check_same_thread=False)

    def fetch(self, connection: Any, sql: str, args: Row) -> list[Row]:
        """See ThreadedOutbox. Statements that change something say which rows."""
        cursor: sqlite3.Cursor = connection.execute(sql, args)
        try:
            return cursor.fetchall()
        finally:
            cursor.close()

    def explain(self, error: Exception) -> Exception:
        """See ThreadedOutbox."""
        if not isinstance(error, sqlite3.Error):
            return error
        if "no such table" in str(error):
            return no_outbox(self.name)
        if isinstance(error, sqlite3.OperationalError):
            return EngineUnavailable(f"{self.name} did not answer: {phrase_with_type(error)}.")
        return EngineError(f"{self.name} refused: {phrase_with_type(error)}.")
