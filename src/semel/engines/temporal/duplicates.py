"""Counts of suppressed duplicates in the records database: written, read and forgotten."""

from __future__ import annotations

from typing import Final

from semel.contract.decision import Reason
from semel.contract.records import Suppressed
from semel.contract.times import from_micros
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

AT_ONCE: Final = 1000


@procedure(ConnectionRole.CONTROL, atomic=True)
def add(namespace: str, rows: list[Row]) -> Script[None]:
    """Add to what is counted. Rows: execution, reason, times, first_at, last_at, due_at."""
    yield SqlBatch("count_record_duplicates", rows, (namespace,))


@procedure(ConnectionRole.READ, atomic=True)
def of(namespace: str, executions: list[str]) -> Script[list[Suppressed]]:
    """What was counted for these executions."""
    found = yield SqlBatch("record_duplicates", [(execution,) for execution in executions], (namespace,))
    return [
        Suppressed(execution, Reason(reason), times, from_micros(first), from_micros(last))
        for execution, reason, times, first, last in found
    ]


@procedure(ConnectionRole.CONTROL, atomic=True)
def forget(namespace: str) -> Script[int]:
    """One batch of counts that nobody has added to for as long as they were to be kept: how many."""
    return len((yield SqlQuery("forget_record_duplicates", (namespace, AT_ONCE))))
