"""Rows to records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from semel.codec import decoder_of
from semel.contract.decision import Reason
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution, Suppressed
from semel.contract.times import from_micros, instant, optional, span
from semel.engine.protocol import Filter, Outcome, QueueLag, RecordedRun
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

_TRIES = 5
SNAPSHOT = 0
"""The token of the row of a journal that holds what the last run of an ended flow began with."""
MOST_PENDING = 100_000
"""So many pending executions of a lane are counted for its lag."""
_read_error = decoder_of(ErrorInfo).decode
_DEAD = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)


def dump_error(error: ErrorInfo) -> bytes:
    """An error as it is stored."""
    return msgspec.json.encode(error)


def load_error(data: bytes | None) -> ErrorInfo | None:
    """An error as it was stored."""
    return None if data is None else _read_error(data)


def execution(row: Row) -> Execution:
    """One row of the view, as `get`, `find`, `recent` and `history` select it."""
    (
        id_,
        kind,
        name,
        key,
        queue,
        priority,
        status,
        attempt,
        most,
        created,
        run_at,
        started,
        finished,
        retention,
        window,
        generation,
        previous,
        worker,
        progress,
        cancel,
        error,
        stripped,
        parent,
        stranded,
    ) = row
    return Execution(
        id=id_,
        kind=kind,
        name=name,
        key=key,
        queue=queue,
        priority=priority,
        status=Status(status),
        attempt=attempt,
        max_attempts=most,
        created_at=from_micros(created),
        run_at=optional(run_at),
        started_at=optional(started),
        finished_at=optional(finished),
        retention=span(retention),
        window=span(window),
        generation=generation,
        previous_id=previous,
        worker=worker,
        progress=progress,
        cancel_requested=bool(cancel),
        error=load_error(error),
        expired=bool(stripped),
        parent_id=parent,
        stranded=bool(stranded),
    )


@procedure(ConnectionRole.READ, atomic=True)
def get(namespace: str, id_: str) -> Script[Execution | None]:
    """By id, or by the beginning of one."""
    if len(id_) < 32:
        ids = yield SqlQuery("ids_like", (namespace, id_, id_ + "g"))
        if len(ids) != 1:
            return None
        id_ = ids[0][0]
    rows = yield SqlQuery("get", (namespace, id_))
    return execution(tuple(rows[0])) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def find(namespace: str, kind: str, key: str) -> Script[Execution | None]:
    """The newest under a key."""
    rows = yield SqlQuery("find", (namespace, kind, key))
    return execution(tuple(rows[0])) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def recent(namespace: str, which: Filter) -> Script[list[Execution]]:
    """Newest first; live ones and dead ones are found without looking at the rest."""
    query = "recent"
    found: tuple[list[str], ...] = ()
    if which.attributes:
        query, found = "recent_found", (list(which.attributes), list(which.attributes.values()))
    elif which.scheduled is not None:
        return (yield from _scheduled(namespace, which, which.scheduled))
    elif which.status in _DEAD:
        query = "recent_dead"
    elif which.status is not None and which.status.live:
        query = "recent_live"
    status = None if which.status is None else which.status.value
    rows = yield SqlQuery(
        query, (namespace, which.before, which.queue, which.name, which.kind, status, which.limit, *found)
    )
    return [execution(tuple(row)) for row in rows]


def _scheduled(namespace: str, which: Filter, between: tuple[datetime, datetime]) -> Script[list[Execution]]:
    """Runs by their slots, newest first."""
    status = None if which.status is None else which.status.value
    given = (namespace, which.before, which.queue, which.name, which.kind, status, which.limit, *map(instant, between))
    return [execution(tuple(row)) for row in (yield SqlQuery("recent_scheduled", given))]


@procedure(ConnectionRole.READ)
def explain(namespace: str, kind: str, key: str) -> Script[tuple[list[Execution], list[Suppressed], int]]:
    """Everything under a key."""
    rows = yield SqlQuery("history", (namespace, kind, key))
    executions = [execution(tuple(row)) for row in rows]
    suppressed = []
    for one in executions:
        for id_, reason, times, first, last in (yield SqlQuery("suppressed", (one.id,))):
            suppressed.append(Suppressed(id_, Reason(reason), times, from_micros(first), from_micros(last)))
    now = (yield SqlQuery("clock"))[0][0]
    return executions, suppressed, now


@procedure(ConnectionRole.READ, atomic=True)
def input_of(namespace: str, id_: str) -> Script[bytes | None]:
    """The stored input."""
    rows = yield SqlQuery("input", (namespace, id_))
    return bytes(rows[0][0]) if rows and rows[0][0] is not None else None


@procedure(ConnectionRole.READ, atomic=True)
def outcomes(ids: list[str]) -> Script[dict[str, Outcome | None]]:
    """How these ended; None for those that have not. What is missing does not exist any more."""
    found: dict[str, Outcome | None] = {}
    for id_, status, output, error, stripped in (yield SqlBatch("outcomes", [(i,) for i in ids])):
        ended = Status(status).terminal
        found[id_] = Outcome(Status(status), output, load_error(error), bool(stripped)) if ended else None
    return found


@procedure(ConnectionRole.READ)
def queues(namespace: str) -> Script[tuple[list[Row], list[Row]]]:
    """Depths and limits of queues."""
    depths: list[Any] = yield SqlQuery("queue_depths", (namespace,))
    limits: list[Any] = yield SqlQuery("limits", (namespace,))
    return depths, limits


@procedure(ConnectionRole.READ, atomic=True)
def queue_lags(namespace: str) -> Script[list[QueueLag]]:
    """How much waits in each queue, and the oldest for how long."""
    rows = yield SqlQuery("queue_lags", (namespace, MOST_PENDING))
    return [
        QueueLag(name, int(n or 0), None if at is None else max(0.0, (now - at) / 1e6)) for name, n, at, now in rows
    ]


@procedure(ConnectionRole.READ, atomic=True)
def workers(namespace: str) -> Script[list[Row]]:
    """Workers that hold a lease."""
    return (yield SqlQuery("workers", (namespace,)))


@procedure(ConnectionRole.CONTROL, atomic=True)
def clock() -> Script[int]:
    """The time by the database."""
    return int((yield SqlQuery("clock"))[0][0])


@procedure(ConnectionRole.READ, atomic=True)
def published(namespace: str, id_: str, name: str) -> Script[bytes | None]:
    """A value that a workflow has published."""
    rows = yield SqlQuery("published", (namespace, id_, name))
    return bytes(rows[0][0]) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def attributes(namespace: str, id_: str) -> Script[dict[str, str]]:
    """The search attributes of a workflow."""
    rows = yield SqlQuery("attributes", (namespace, id_))
    return dict(map(tuple, rows))


@procedure(ConnectionRole.READ, atomic=True)
def parked(namespace: str, most: int) -> Script[Sequence[tuple[str, str, str]]]:
    """Flows whose code cannot go on: kind, name and key."""
    rows = yield SqlQuery("parked", (namespace, most))
    return [(kind, name, key) for kind, name, key in rows]


@procedure(ConnectionRole.READ, atomic=True)
def stranded(namespace: str, most: int) -> Script[Sequence[tuple[str, str, str]]]:
    """Executions that live and that nothing will ever run: kind, name and key."""
    rows = yield SqlQuery("stranded", (namespace, most))
    return [(kind, name, key) for kind, name, key in rows]


@procedure(ConnectionRole.READ)
def past(namespace: str, id_: str) -> Script[RecordedRun | None]:
    """All that a flow can be run again from."""
    tries = 0
    while True:
        tries += 1
        head = yield SqlQuery("past", (namespace, id_))
        if not head:
            return None
        kind, name, key, queue, generation, root, parent, input_, base, snapshot = head[0]
        rows = [(n, token, bytes(body)) for n, token, body in (yield SqlQuery("journal_of", (id_,)))]
        if rows and rows[0][1] == SNAPSHOT:
            (base, _, snapshot), *rows = rows
        if not rows or rows[0][0] == (base or 0) + 1 or tries == _TRIES:
            break
        # It continued as new between the two statements; look again.
    return RecordedRun(
        id_,
        name,
        key or id_,
        namespace,
        queue,
        generation,
        root,
        parent,
        _bytes(input_),
        _bytes(snapshot),
        base or 0,
        tuple(body for _, _, body in rows),
        kind,
    )


def _bytes(data: bytes | None) -> bytes | None:
    return None if data is None else bytes(data)
