"""Executions as rows of the table `semel_execution`."""

from __future__ import annotations

from typing import NamedTuple

from semel.contract.times import instant, micros
from semel.engine.start_request import StartRequest


class ExecutionRow(NamedTuple):
    """A new execution, in the order of the statement `admit`; times in microseconds."""

    id: str
    kind: str
    name: str
    key: str | None
    lane: int
    generation: int
    previous_id: str | None
    """The execution that had the key before."""
    fingerprint: bytes
    input: bytes | None
    max_attempts: int
    concurrency_key: str | None
    retention: int
    dedup_window: int
    delay: int | None = None
    run_at: int | None = None
    root_id: str | None = None
    """The execution that its effect keys are made of, where it is another one and there is no key."""
    parent_id: str | None = None
    """The workflow that asked for it."""
    waiters: str | None = None
    """The commands of workflows that wait for its end: [[workflow, command], …] as JSON."""


def row_of(start: StartRequest, lane: int, waiters: str | None = None) -> ExecutionRow:
    """The row of an execution that is asked for; the first one under its key."""
    options = start.options
    return ExecutionRow(
        id=start.id,
        kind=options.kind,
        name=options.name,
        key=start.key,
        lane=lane,
        generation=0,
        previous_id=None,
        fingerprint=start.fingerprint,
        input=start.payload,
        max_attempts=options.max_attempts,
        concurrency_key=start.concurrency_key,
        retention=micros(options.retention),
        dedup_window=micros(options.window),
        delay=None if options.delay is None else micros(options.delay),
        run_at=None if options.run_at is None else instant(options.run_at),
        root_id=start.root,
        parent_id=start.parent,
        waiters=waiters,
    )
