"""A user's function within a transaction of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import apsw

from semel.engines.journal.script import Tap, refuse_control
from semel.engines.journal.working import Worked, work
from semel.errors import EngineUnavailable

AWAY = (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.NoMemError, EngineUnavailable)
"""What says nothing of the function: the database could not do it now, and may later."""


class SqliteTransaction:
    """What `ctx.transaction` hands to the function: statements with $1, $2, … as on PostgreSQL."""

    def __init__(self, db: apsw.Connection, tap: Tap | None) -> None:
        self._db = db
        self._tap = tap

    def execute(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        refuse_control(sql)
        if self._tap is not None:
            self._tap.before(sql)
        bound: Any = args if "?" in sql else {str(at): value for at, value in enumerate(args, 1)}
        rows = self._db.execute(sql, bound).fetchall()
        if self._tap is not None:
            self._tap.after(sql)
        return rows


def work_in(db: apsw.Connection, do: Callable[[Any], Any], tap: Tap | None = None) -> Worked:
    """Run it; what it wrote is undone if it raises. A database that is away is no answer, and is raised."""
    db.execute("savepoint semel_work")
    value, error = work(do, SqliteTransaction(db, tap))
    if error is None:
        db.execute("release semel_work")
        return value, None
    if isinstance(error, AWAY) or not db.in_transaction:  # or SQLite itself has rolled all of it back
        raise error
    with contextlib.suppress(apsw.SQLError):
        db.execute("rollback to semel_work")
        db.execute("release semel_work")
    return None, error
