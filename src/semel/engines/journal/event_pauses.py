"""Activities that are paused for events: what comes meanwhile is kept, and taken in once they are resumed."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from semel.contract.events import OutcomeState
from semel.contract.runs import Why
from semel.contract.times import from_micros
from semel.engine.event_flow import Change, EventFlow, FlowId, FlowRow, Pause, Take
from semel.engine.event_routing import FilterData, Plan, Router, Subscription
from semel.engine.publications import read_publication
from semel.engine.subscriptions import SubscriptionRow
from semel.engine.ticks import Start
from semel.engines.journal.event_flow_scripts import (
    REASON_LENGTH,
    RouterChanged,
    Taken,
    describe_gone,
    save_flow,
    take_in,
)
from semel.engines.journal.runs import Runs
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure
from semel.errors import InvalidValue, SemelError, phrase

PAUSED_AT_ONCE: Final = 200
"""Events that are taken in, in one transaction, after a pause."""


@procedure(ConnectionRole.CONTROL)
def pause(namespace: str, id_: str, note: str | None) -> Script[bool]:
    """Keep events for an activity back. False: there is no such activity."""
    rows = yield SqlQuery("lock_subscription", (namespace, id_))
    if not rows:
        return False
    row = SubscriptionRow(*rows[0])
    yield SqlQuery("pause_subscription", (namespace, id_, note if row.paused_at is None else note or row.note))
    yield SqlBatch("save_event_flows", [("pause", id_, "", msgspec.json.encode(Pause()), None)], (namespace,))
    yield SqlQuery("set_router_stamp", (namespace, secrets.randbits(62)))
    return True


@procedure(ConnectionRole.CONTROL)
def resume(namespace: str, id_: str, note: str | None) -> Script[bool]:
    """Have what came while an activity was paused taken in, and then what comes. False: there is no such activity."""
    rows = yield SqlQuery("lock_subscription", (namespace, id_))
    if not rows:
        return False
    if SubscriptionRow(*rows[0]).paused_at is not None:
        ((_, now),) = yield SqlQuery("next_due_event", (namespace,))
        state = msgspec.json.encode(Pause(resumed=True))
        yield SqlBatch("save_event_flows", [("pause", id_, "", state, now)], (namespace,))
        yield SqlQuery("note_subscription", (namespace, id_, note))
        yield SqlQuery("announce_events")
    return True


@procedure(ConnectionRole.CONTROL)
def take_paused(namespace: str, activity: str, router: Router, where: Runs) -> Script[Taken]:
    """Take in events that came while an activity was paused, oldest first, some at once; with the last it is resumed.

    RouterChanged: subscriptions have changed since they were read.
    """
    flow = EventFlow()
    id_ = FlowId("pause", activity, "")
    locked = [FlowRow(*row) for row in (yield SqlBatch("lock_event_flows", [tuple(id_)], (namespace,)))]
    if (yield SqlQuery("router_stamp", (namespace,)))[0][0] != router.stamp:
        raise RouterChanged("subscriptions were changed while events were taken in: try again.")
    subscription = router.subscriptions.get(activity)
    if not locked or locked[0].due_at is None:
        return Taken()  # somebody else has done it
    flow.load(locked)
    rows = yield SqlQuery("paused_outcomes", (namespace, activity, PAUSED_AT_ONCE))
    takes: list[Take] = []
    for event, envelope in rows:
        if subscription is None:
            flow.note(activity, [event], Change(OutcomeState.DROPPED, reason=describe_gone(activity)))
            continue
        try:
            takes.append(_take_again(subscription, event, bytes(envelope or b""), flow.now))
        except SemelError as error:
            reason = f"it cannot be run: {phrase(error)}"[:REASON_LENGTH]
            flow.note(activity, [event], Change(OutcomeState.DROPPED, reason=reason))
    over = len(rows) < PAUSED_AT_ONCE
    if over:
        flow.set(id_, None, None)
        yield SqlQuery("resume_subscription", (namespace, activity))
        yield SqlQuery("due_event_flows", (namespace, activity))
        yield SqlQuery("set_router_stamp", (namespace, secrets.randbits(62)))
    taken = yield from take_in(namespace, flow, takes, (), where)
    return taken._replace(flows=1, opened=True)


def withdraw_replayed(namespace: str, plans: Sequence[Plan]) -> Script[list[Plan]]:
    """Take events that a replay runs now out of pauses, and note that those that were dropped have a run.

    What somebody else has taken in meanwhile is left to them. Part of a larger script, which has locked the events.
    """
    starts = [(plan, one) for plan in plans for one in plan.starts if one.why is Why.REPLAY]
    if not starts:
        return list(plans)
    pauses: list[Row] = [("pause", activity, "") for activity in sorted({one.schedule for _, one in starts})]
    yield SqlBatch("lock_event_flows", pauses, (namespace,))
    rows = yield SqlBatch(
        "outcomes_of", [(id_,) for id_ in sorted({plan.publication.id for plan, _ in starts})], (namespace,)
    )
    states = {(event, activity): OutcomeState(state) for event, activity, state, *_ in rows}
    flow = EventFlow()
    left: list[Plan] = []
    for plan in plans:
        chosen: list[Start] = []
        for one in plan.starts:
            state = states.get((plan.publication.id, one.schedule)) if one.why is Why.REPLAY else None
            if state in (OutcomeState.GATHERED, OutcomeState.QUEUED):
                continue
            if state in (OutcomeState.PAUSED, OutcomeState.DROPPED):
                flow.note(one.schedule, [plan.publication.id], Change(OutcomeState.STARTED, run=one.request.key))
            chosen.append(one)
        left.append(plan._replace(starts=tuple(chosen)))
    yield from save_flow(namespace, flow)
    return left


def _take_again(subscription: Subscription, id_: str, envelope: bytes, now: int) -> Take:
    """An event that was kept back, as if it came now. SemelError: it cannot be taken in."""
    publication = read_publication(id_, envelope, from_micros(now))
    keys, problem = subscription.read_keys(publication.event, FilterData(publication.event))
    if problem is not None:
        raise InvalidValue(problem)
    return subscription.take(publication, keys, Why.EVENT)
