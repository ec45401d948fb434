"""A user's function within a transaction of the engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from semel.engines.journal.user_transactions import Worked, refuse_control, work
from semel.engines.sqlite.driver import BUSY, FULL, IOERR, NOMEM, Connection, Driver
from semel.errors import EngineUnavailable, InvalidValue
from semel.transactional.statements import StatementHook

_AWAY: Final = (FULL, IOERR, BUSY, NOMEM)
"""What says nothing of the function: the database could not do it now, and may later."""
_TEXTS: Final = re.compile(r"'[^']*'")
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

    def __init__(self, db: Connection, driver: Driver, tap: StatementHook | None) -> None:
        self._db = db
        self._driver = driver
        self._tap = tap
        self.error: Exception | None = None
        """What the last statement raised that failed. Where one ended the transaction, it was the last."""

    def execute(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Run one statement; its rows."""
        refuse_control(sql)
        if not self._db.in_transaction:  # each statement would be a transaction of its own now
            raise InvalidValue(ENDED)
        if self._tap is not None:
            self._tap.before(sql)
        in_order = "?" in _TEXTS.sub("", sql)
        try:
            rows = self._db.execute(sql, args if in_order else {str(at): value for at, value in enumerate(args, 1)})
        except self._driver.error as error:
            self.error = error
            raise
        if self._tap is not None:
            self._tap.after(sql)
        return rows


def work_in(db: Connection, driver: Driver, do: Callable[[Any], Any], tap: StatementHook | None = None) -> Worked:
    """Run it; what it wrote is undone if it raises. A database that is away is no answer, and is raised.

    Raises Undone when it has ended the transaction: then nothing is left of it, nor of what came before.
    """
    tx = SqliteTransaction(db, driver, tap)
    db.execute("savepoint semel_work")
    db.forbid_transaction_control(True)  # whatever gets past the look at its words is refused
    try:
        value, error = work(do, tx)
    finally:
        db.forbid_transaction_control(False)
    if error is not None and _is_away(error, driver):
        raise error
    if not db.in_transaction:
        if tx.error is not None and _is_away(tx.error, driver):
            raise tx.error
        raise Undone(error or InvalidValue(ENDED))
    if error is not None:
        db.execute("rollback to semel_work")
    db.execute("release semel_work")
    return value, error


def _is_away(error: BaseException, driver: Driver) -> bool:
    return isinstance(error, EngineUnavailable) or driver.code_of(error) in _AWAY
