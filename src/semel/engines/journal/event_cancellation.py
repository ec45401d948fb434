"""Runs that are cancelled by an event: those of events that happened before it, and what waits of those."""

from __future__ import annotations

from typing import Final

from semel.codec import decoder_of
from semel.contract.events import EventRun, OutcomeState
from semel.contract.slot_policy import Stop
from semel.engine.event_flow import CancelRequest, Change, EventFlow, FlowId, FlowRow
from semel.engines.journal.event_flow_scripts import Taken, lock_flows, save_flow
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
    found, runs = yield from _find_cancelled(namespace, row)
    flow = EventFlow()
    waiting: dict[FlowId, list[str]] = {}
    for event, state, kind, key, _ in found:
        if state != OutcomeState.STARTED and kind is not None:
            waiting.setdefault(FlowId(kind, row.activity, key or ""), []).append(event)
        elif state != OutcomeState.STARTED:
            flow.note(row.activity, [event], Change(OutcomeState.DROPPED, reason=reason))
    yield from lock_flows(namespace, flow, waiting)
    for id_, events in waiting.items():
        flow.withdraw(id_, events, reason)
    cancelled = {run.key for run in runs}
    if not where.asks_first:
        for run in runs:
            yield from where.stop(run.execution, Stop.CANCEL)
    started = [(event, run) for event, state, _, _, run in found if state == OutcomeState.STARTED]
    if started:
        rows: list[Row] = [(event, row.activity, reason if run in cancelled else None) for event, run in started]
        yield SqlBatch("end_outcomes", rows, (namespace,))
    if len(found) < CANCELLED_AT_ONCE:
        yield SqlBatch("drop_event_flows", [tuple(row.id)], (namespace,))
    yield from save_flow(namespace, flow)
    stops = () if where.asks_first else tuple(run.execution for run in runs)
    return Taken(stops=stops, flows=1)


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
