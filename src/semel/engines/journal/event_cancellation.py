"""Runs that are cancelled by an event: those of events that happened before it, and what waits of those."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from semel.codec import decoder_of
from semel.contract.events import EventRun, OutcomeState
from semel.contract.slot_policy import Stop
from semel.engine.event_flow import CancelRequest, EventFlow, FlowId, FlowRow
from semel.engines.journal.event_flow_scripts import Taken, save_flow
from semel.engines.journal.event_runs import newest_runs
from semel.engines.journal.runs import Runs
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

CANCELLED_AT_ONCE: Final = 200
"""Events whose runs are cancelled in one transaction."""
_read_request: Final = decoder_of(CancelRequest).decode


@procedure(ConnectionRole.READ)
def find_cancelled(namespace: str, row: FlowRow) -> Script[list[str]]:
    """The executions that an event cancels, which a cluster has to be told before it is noted that it was."""
    _, runs = yield from _find_cancelled(namespace, row)
    return [run.execution for run in runs]


@procedure(ConnectionRole.CONTROL)
def cancel_runs(namespace: str, row: FlowRow, where: Runs) -> Script[Taken]:
    """Cancel runs of events that happened before one that cancels them, and drop those that wait; some at once."""
    if not (yield SqlBatch("lock_event_flows", [tuple(row.id)], (namespace,))):
        return Taken()  # somebody else has done it
    reason = f"cancel_on: it was cancelled by event {row.key!r}"
    flow = EventFlow()
    before, _ = yield from _find_cancelled(namespace, row)
    locked = yield from _lock(namespace, flow, {id_ for one in before if (id_ := _flow_of(row, one)) is not None})
    # Whoever held a flow may have started what waited in it: only now it is certain what became of each event.
    found, runs = yield from _find_cancelled(namespace, row)
    waiting: dict[FlowId, list[str]] = {}
    for one in found:
        if (id_ := _flow_of(row, one)) is not None and id_ in locked:
            waiting.setdefault(id_, []).append(one[0])
    for id_, events in waiting.items():
        flow.withdraw(id_, events, reason)
    statuses = (yield from where.statuses([run.execution for run in runs])) if runs else {}
    live = [run for run in runs if (status := statuses.get(run.execution)) is not None and status.live]
    if not where.asks_first:
        for run in live:
            yield from where.stop(run.execution, Stop.CANCEL)
    cancelled = {run.key for run in live}
    started = [(event, run) for event, state, _, _, run in found if state == OutcomeState.STARTED]
    if started:
        rows: list[Row] = [(event, row.activity, reason if run in cancelled else None) for event, run in started]
        yield SqlBatch("end_outcomes", rows, (namespace,))
    if len(found) < CANCELLED_AT_ONCE and len(started) + sum(map(len, waiting.values())) == len(found):
        yield SqlBatch("drop_event_flows", [tuple(row.id)], (namespace,))
    yield from save_flow(namespace, flow)
    return Taken(stops=() if where.asks_first else tuple(run.execution for run in live), flows=1)


def _flow_of(row: FlowRow, outcome: Row) -> FlowId | None:
    """The flow in which an event waits."""
    _, state, kind, key, _ = outcome
    return None if state == OutcomeState.STARTED else FlowId(kind or "", row.activity, key or "")


def _lock(namespace: str, flow: EventFlow, ids: Collection[FlowId]) -> Script[set[FlowId]]:
    """Lock flows that are there, a pause before all others; which they are."""
    found: list[FlowRow] = []
    for paused in (True, False):
        rows: list[Row] = [tuple(id_) for id_ in sorted(ids) if (id_.kind == "pause") is paused]
        if rows:
            found += [FlowRow(*one) for one in (yield SqlBatch("lock_event_flows", rows, (namespace,)))]
    flow.load(found)
    return {one.id for one in found}


def _find_cancelled(namespace: str, row: FlowRow) -> Script[tuple[list[Row], list[EventRun]]]:
    """Events that run or wait and are cancelled by another, and the runs that have none that happened after it."""
    request = _read_request(row.state)
    about = (namespace, row.activity, request.key, request.happened_at, request.arrival, CANCELLED_AT_ONCE)
    found = yield SqlQuery("cancellable_outcomes", about)
    events = {one[0] for one in found}
    keys = sorted({one[4] for one in found if one[1] == OutcomeState.STARTED and one[4] is not None})
    last = dict((yield SqlBatch("events_of_runs", [(key,) for key in keys], (namespace,)))) if keys else {}
    older = [key for key in keys if last.get(key) in events]
    return found, ((yield from newest_runs(namespace, older)) if older else [])
