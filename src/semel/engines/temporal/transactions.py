"""A user's function and the record that it was run, in one transaction: both or neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, Work, procedure

DAY: Final = 86_400_000_000
"""Microseconds until it is asked whether anybody may still want to know."""
AT_ONCE: Final = 1000

Did = tuple[bytes | None, BaseException | None]
"""What the function gave, now or earlier; or what it raised, and then nothing was written."""


@procedure(ConnectionRole.SETTLE)
def transact(namespace: str, execution: str, step: str, do: Callable[[Any], bytes | None]) -> Script[Did]:
    """Run `do(tx)`, unless it was run under this step before; then give what it gave.

    The row comes first: who asks for the same step meanwhile waits until this one has ended, either way. An error is
    given, not raised: raised, it would be taken for one of the database's, or undo what is committed beside it.
    """
    where = (namespace, execution, step)
    if not (yield SqlQuery("begin_record_transaction", (*where, DAY))):
        found = yield SqlQuery("record_transaction", where)
        output = found[0][0]
        return None if output is None else bytes(output), None
    value, error = (yield Work("transaction", do))[0]
    if error is not None:
        yield SqlQuery("undo_record_transaction", where)
        return None, error
    yield SqlQuery("end_record_transaction", (*where, value))
    return value, None


@procedure(ConnectionRole.CONTROL, atomic=True)
def due(namespace: str) -> Script[list[str]]:
    """Executions whose functions ran a while ago, with repeats; the rows are put off."""
    return [row[0] for row in (yield SqlQuery("due_record_transactions", (namespace, AT_ONCE, DAY)))]


@procedure(ConnectionRole.CONTROL, atomic=True)
def forget(namespace: str, executions: list[str]) -> Script[None]:
    """These have ended, and ask for nothing any more."""
    rows: list[Row] = [(execution,) for execution in executions]
    yield SqlBatch("forget_record_transactions", rows, (namespace,))
