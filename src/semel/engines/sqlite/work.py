"""A user's function within a transaction of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw

from semel.engines.journal.script import Tap
from semel.engines.journal.wording import refuse_control
from semel.engines.journal.working import Worked, work
from semel.errors import EngineUnavailable, InvalidValue

AWAY = (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.NoMemError, EngineUnavailable)
"""What says nothing of the function: the database could not do it now, and may later."""
ENDED: Final = (
    "a statement in ctx.transaction() has ended the transaction itself (`insert or rollback`, `on conflict rollback`, "
    "`raise(rollback, …)` in a trigger): nothing of it was kept. Use `or abort`, which undoes that statement only."
)


class Undone(Exception):
    """The function has ended the transaction that it was in, and undone what others wrote there."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error
        """How the function failed."""


class SqliteTransaction:
    """What `ctx.transaction` hands to the function: statements with $1, $2, … as on PostgreSQL."""

    def __init__(self, db: apsw.Connection, tap: Tap | None) -> None:
        self._db = db
        self._tap = tap
        self.error: apsw.Error | None = None
        """What the last statement raised that failed. Where one ended the transaction, it was the last."""

    def execute(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        refuse_control(sql)
        if not self._db.in_transaction:  # each statement would be a transaction of its own now
            raise InvalidValue(ENDED)
        if self._tap is not None:
            self._tap.before(sql)
        bound: Any = args if "?" in sql else {str(at): value for at, value in enumerate(args, 1)}
        try:
            rows = self._db.execute(sql, bound).fetchall()
        except apsw.Error as error:
            self.error = error
            raise
        if self._tap is not None:
            self._tap.after(sql)
        return rows


def work_in(db: apsw.Connection, do: Callable[[Any], Any], tap: Tap | None = None) -> Worked:
    """Run it; what it wrote is undone if it raises. A database that is away is no answer, and is raised.

    Raises Undone when it has ended the transaction: then nothing is left of it, nor of what came before.
    """
    tx = SqliteTransaction(db, tap)
    db.execute("savepoint semel_work")
    db.set_commit_hook(lambda: True)  # whatever gets past the look at its words is undone, not committed
    try:
        value, error = work(do, tx)
    finally:
        db.set_commit_hook(None)
    if isinstance(error, AWAY):
        raise error
    try:
        if error is not None:
            db.execute("rollback to semel_work")
        db.execute("release semel_work")
    except apsw.SQLError as gone:  # there is no such savepoint any more
        if isinstance(tx.error, AWAY):
            raise tx.error from gone
        raise Undone(error or InvalidValue(ENDED)) from gone
    return value, error
