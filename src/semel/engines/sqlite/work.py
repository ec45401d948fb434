"""A user's function within a transaction of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import apsw

from semel.engines.journal.script import refuse_control


class SqliteTransaction:
    """What `ctx.transaction` hands to the function: statements with $1, $2, … as on PostgreSQL."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def execute(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        refuse_control(sql)
        bound: Any = args if "?" in sql else {str(at): value for at, value in enumerate(args, 1)}
        return self._db.execute(sql, bound).fetchall()


def work_in(db: apsw.Connection, do: Callable[[Any], Any]) -> tuple[Any, BaseException | None]:
    """Run it; what it wrote is undone if it raises."""
    db.execute("savepoint semel_work")
    try:
        value = do(SqliteTransaction(db))
    except Exception as error:
        with contextlib.suppress(apsw.SQLError):  # SQLite itself may have rolled all of it back
            db.execute("rollback to semel_work")
            db.execute("release semel_work")
        return None, error
    db.execute("release semel_work")
    return value, None
