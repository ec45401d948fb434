"""The ledger: who holds a key whose window is longer than the cluster remembers.

A run **reserves** its key before it does anything else, and **settles** it as the last thing it does. Whether it may
have the key is decided in the transaction that reserves it, so that a run that was started because the cluster had
forgotten the one before does no work: it finds who did it. While a run is open the cluster itself lets no second
one in; a key whose holder has neither settled nor is open in the cluster has lost its holder, and is free.
"""

from __future__ import annotations

from typing import Any, Final

from semel.contract.decision import Admit, Prior, Request, decide
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution
from semel.contract.retention import Retention, RetentionAction, retention_action
from semel.contract.times import from_micros, instant, micros, optional, span
from semel.engine.protocol import Outcome
from semel.engines.journal.read import dump_error, load_error
from semel.engines.journal.script import Collision, ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure
from semel.engines.temporal.worker_requests import Reservation, Settlement

DAY: Final = 86_400_000_000
"""Microseconds until one that has not ended is looked at."""
AT_ONCE: Final = 200
LOST: Final = ErrorInfo("semel.Terminated", "it ended in the cluster without a word: terminated, or deleted.")


@procedure(ConnectionRole.ADMIT)
def reserve(namespace: str, wanted: Reservation) -> Script[Prior]:
    """Take the key, or learn who has it: the holder afterwards."""
    asked = Request(wanted.name, wanted.fingerprint, wanted.reuse, wanted.older)
    where = (namespace, wanted.kind, wanted.key)
    yield SqlQuery("await_record_key", where)
    yield SqlQuery("lock_record_key", where)
    found = yield SqlQuery("record_by_key", where)
    if found:
        prior = prior_of(found[0])
        free = prior.status.live or prior.id == wanted.previous
        if prior.id == wanted.execution:
            return prior
        if not free and not isinstance(decide(prior, asked, from_micros(found[0][-1])), Admit):
            return prior
        yield SqlBatch("forget_record_keys", [(prior.id,)], (namespace,))
    if (yield SqlQuery("reserve_record_key", _row(namespace, wanted))):
        return Prior(wanted.execution, wanted.name, wanted.fingerprint, Status.RUNNING, wanted.generation, None)
    raise Collision(f"execution {wanted.execution} holds another key than {wanted.key!r}: nothing was written.")


def _row(namespace: str, wanted: Reservation) -> Row:
    return (
        namespace,
        wanted.kind,
        wanted.key,
        wanted.execution,
        wanted.name,
        wanted.queue,
        wanted.priority,
        wanted.max_attempts,
        wanted.generation,
        wanted.previous,
        wanted.fingerprint,
        wanted.input,
        micros(wanted.retention),
        micros(wanted.window),
        DAY,
    )


@procedure(ConnectionRole.SETTLE)
def settle(namespace: str, end: Settlement) -> Script[bool]:
    """Write down how it ended, once: what has ended stays as it is. False: it holds no key, and nothing was written."""
    error = None if end.error is None else dump_error(end.error)
    row = (namespace, end.execution, end.status.value, end.attempt, instant(end.at), end.output, error)
    if (yield SqlQuery("settle_record_key", row)):
        return True
    return bool((yield SqlQuery("record_by_execution", (namespace, end.execution))))


@procedure(ConnectionRole.CONTROL)
def lose(namespace: str, executions: list[str]) -> Script[None]:
    """These are gone from the cluster and have not told their end: they have failed."""
    now = (yield SqlQuery("clock"))[0][0]
    for execution in executions:
        yield SqlQuery("settle_record_key", (namespace, execution, Status.FAILED.value, 0, now, None, dump_error(LOST)))


@procedure(ConnectionRole.READ, atomic=True)
def by_key(namespace: str, kind: str, key: str) -> Script[Row | None]:
    """Who holds a key and has ended. What lives is the cluster's to tell of."""
    return _ended((yield SqlQuery("record_by_key", (namespace, kind, key))))


@procedure(ConnectionRole.READ, atomic=True)
def by_execution(namespace: str, execution: str) -> Script[Row | None]:
    """The same, by the holder."""
    return _ended((yield SqlQuery("record_by_execution", (namespace, execution))))


def _ended(found: list[Any]) -> Row | None:
    return tuple(found[0]) if found and execution_of(found[0]).finished_at is not None else None


@procedure(ConnectionRole.READ)
def outcome(namespace: str, execution: str) -> Script[Outcome | None]:
    """How it ended. None: it has not, or is not known here."""
    found = _ended((yield SqlQuery("record_by_execution", (namespace, execution))))
    if found is None:
        return None
    kept = execution_of(found)
    payloads = yield SqlQuery("record_payloads", (namespace, execution))
    output = payloads[0][1] if payloads else None
    return Outcome(kept.status, None if output is None else bytes(output), kept.error, kept.expired or not payloads)


@procedure(ConnectionRole.READ, atomic=True)
def input_of(namespace: str, execution: str) -> Script[bytes | None]:
    """What it was asked for with, while retention keeps it."""
    found = yield SqlQuery("record_payloads", (namespace, execution))
    return bytes(found[0][0]) if found and found[0][0] is not None else None


@procedure(ConnectionRole.CONTROL)
def clean(namespace: str) -> Script[tuple[int, list[str]]]:
    """One batch: how many keys were looked at, and those that have not ended, which are put off.

    Whether these still live only the cluster knows. Each is looked at again when it is twice as old.
    """
    strip: list[Row] = []
    forget: list[Row] = []
    later: list[Row] = []
    open_: list[str] = []
    due = yield SqlQuery("due_record_keys", (namespace, AT_ONCE))
    for execution, status, finished, retention, window, at in due:
        if Status(status).live:
            open_.append(execution)
            later.append((execution,))
            continue
        match retention_action(Retention(span(retention), span(window)), from_micros(finished), True, from_micros(at)):
            case RetentionAction.KEEP:
                later.append((execution,))
            case RetentionAction.STRIP:
                strip.append((execution,))
            case RetentionAction.FORGET:
                forget.append((execution,))
    for name, rows, shared in (
        ("strip_record_keys", strip, (namespace,)),
        ("forget_record_keys", forget, (namespace,)),
        ("put_off_record_keys", later, (namespace, DAY)),
    ):
        if rows:
            yield SqlBatch(name, rows, shared)
    return len(due), open_


def prior_of(row: Any) -> Prior:
    """A row of the ledger, as the contract asks for it."""
    kept = execution_of(row)
    return Prior(
        kept.id,
        kept.name,
        bytes(row[10]),
        kept.status,
        kept.generation,
        kept.window_ends_at,
        previous=kept.previous_id,
    )


def execution_of(row: Any) -> Execution:
    """A row of the ledger, as it looks from outside."""
    (
        kind,
        key,
        execution,
        name,
        queue,
        priority,
        most,
        attempt,
        generation,
        previous,
        _,
        status,
        created,
        finished,
        retention,
        window,
        stripped,
        error,
        _,
    ) = row
    return Execution(
        id=execution,
        kind=kind,
        name=name,
        key=key,
        queue=queue,
        priority=priority,
        status=Status(status),
        attempt=attempt,
        max_attempts=most,
        created_at=from_micros(created),
        run_at=None,
        started_at=from_micros(created),
        finished_at=optional(finished),
        retention=span(retention),
        window=span(window),
        generation=generation,
        previous_id=previous,
        worker=None,
        progress=None,
        cancel_requested=False,
        error=load_error(error),
        expired=bool(stripped),
    )
