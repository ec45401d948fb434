"""Events that are gathered or limited, in tables: taken in with the event, and carried on when a flow is due.

Flows are locked in one order, limits after all others, so that no two transactions wait for each other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from semel.contract.decision import Reuse
from semel.contract.event_flow import Single, Window
from semel.contract.events import EventOutcome, EventRun, OutcomeState
from semel.contract.slot_policy import Stop
from semel.contract.times import from_micros, optional
from semel.engine.event_flow import (
    GATHERING,
    Cancel,
    Change,
    EventFlow,
    FlowId,
    FlowRow,
    QueuedRun,
    ReadyRun,
    Take,
)
from semel.engine.event_routing import FilterData, GatheredRun, Router, Subscription
from semel.engine.publications import read_event
from semel.engine.ticks import Start
from semel.engines.journal.event_runs import newest_runs, start_runs
from semel.engines.journal.runs import Runs
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure
from semel.errors import EngineUnavailable, SemelError, phrase
from semel.triggers.ids import event_run_id

if TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope

log = logging.getLogger("semel.events")
AT_ONCE: Final = 50
"""Flows that are carried on in one transaction: each may have a thousand events."""
REASON_LENGTH: Final = 2000
PUT_OFF: Final = 10_000_000
"""Microseconds until a flow is looked at again that could not be read."""


class RouterChanged(EngineUnavailable):
    """Subscriptions have changed since they were read: nothing was written."""


class Taken(NamedTuple):
    """What one transaction did with events that are gathered or limited."""

    runs: tuple[EventRun, ...] = ()
    starts: tuple[Start, ...] = ()
    outcomes: tuple[tuple[str, EventOutcome], ...] = ()
    """Events, and what became of each."""
    opened: bool = False
    """Some flow has to be looked at later: workers are to be told."""
    stops: tuple[str, ...] = ()
    """Executions that are cancelled: once this is committed, where that is not done with it."""
    flows: int = 0
    """Flows that were due."""


def take_events(namespace: str, takes: Sequence[Take], cancels: Sequence[Cancel], where: Runs) -> Script[Taken]:
    """Take events in, in the order in which they came; part of a larger script."""
    flow = EventFlow()
    paused = [one for one in takes if one.subscription.paused]
    if paused:
        takes = [one for one in takes if not one.subscription.paused]
        yield from _lock_pauses(namespace, flow, {one.subscription.id for one in paused})
        for take in paused:
            flow.keep(take)
    return (yield from take_in(namespace, flow, takes, cancels, where))


def take_in(
    namespace: str, flow: EventFlow, takes: Sequence[Take], cancels: Sequence[Cancel], where: Runs
) -> Script[Taken]:
    """Take in events of activities that are not paused; part of a larger script."""
    gathered = [one for one in takes if _gather_of(one.subscription) is not None]
    direct = [one for one in takes if _gather_of(one.subscription) is None]
    first = [_gather_id(one) for one in gathered]
    first += [id_ for one in takes if (id_ := _cancel_id(one)) is not None]
    first += [FlowId("cancel_on", one.subscription.id, one.key) for one in cancels]
    yield from lock_flows(namespace, flow, first)
    for cancel in cancels:
        flow.cancel(cancel)
    for take in gathered:
        flow.take(take)
    subscriptions = {take.subscription.id: take.subscription for take in takes}
    known = {take.publication.id: take.publication.envelope for take in takes}
    return (yield from _carry_out(namespace, flow, subscriptions, direct, known, where))


def _lock_pauses(namespace: str, flow: EventFlow, activities: Collection[str]) -> Script[None]:
    """Make sure that activities are still paused until the end of this transaction. RouterChanged: they are not."""
    wanted: list[Row] = [("pause", activity, "") for activity in sorted(activities)]
    rows = [FlowRow(*row) for row in (yield SqlBatch("lock_event_flows", wanted, (namespace,)))]
    if len(rows) < len(wanted):
        raise RouterChanged("an activity was resumed while events were routed: try again.")
    flow.load(rows)


@procedure(ConnectionRole.READ, atomic=True)
def find_due(namespace: str, limit: int) -> Script[list[FlowRow]]:
    """Flows that somebody has to look at now."""
    return [FlowRow(*row) for row in (yield SqlQuery("find_due_event_flows", (namespace, limit)))]


@procedure(ConnectionRole.CONTROL)
def carry_on(namespace: str, router: Router, where: Runs, limit: int) -> Script[Taken]:
    """Start what is due: windows that are closed, runs that were put off, events that waited for the end of a run.

    RouterChanged: subscriptions have changed since they were read.
    """
    flow = EventFlow()
    rows = [FlowRow(*row) for row in (yield SqlQuery("lock_due_event_flows", (namespace, limit)))]
    rows = [row for row in rows if row.kind not in ("cancel", "pause")]  # see event_cancellation.py and event_pauses.py
    if (yield SqlQuery("router_stamp", (namespace,)))[0][0] != router.stamp:
        raise RouterChanged("subscriptions were changed while events were gathered: try again.")
    readable = yield from _load(namespace, flow, rows)
    for row in readable:
        subscription = router.subscriptions.get(row.activity)
        if subscription is None:
            _give_up(flow, row.id)
        elif subscription.paused:
            flow.hold(row.id)
        elif row.kind in GATHERING:
            flow.close(row.id, _reason(flow, row.id, subscription))
        elif row.kind == "start":
            flow.release(row.id)
    singletons = [row.id for row in readable if row.kind == "singleton" and flow.due(row.id) is not None]
    yield from _look_at_singletons(namespace, flow, singletons, where)
    taken = yield from _carry_out(namespace, flow, router.subscriptions, (), {}, where)
    return taken._replace(flows=len(rows))


def _load(namespace: str, flow: EventFlow, rows: Sequence[FlowRow]) -> Script[list[FlowRow]]:
    """Read flows; those that a newer release has written are left for a worker of it, and looked at later."""
    readable: list[FlowRow] = []
    later: list[Row] = []
    for row in rows:
        try:
            flow.load([row])
            readable.append(row)
        except (KeyError, msgspec.MsgspecError) as error:
            log.warning("the %s of activity %s cannot be read: %s", row.kind, row.activity, error)
            later.append((*row.id, row.state, row.now + PUT_OFF))
    if later:
        yield SqlBatch("save_event_flows", later, (namespace,))
    return readable


def _gather_of(subscription: Subscription) -> str | None:
    flow = subscription.definition.flow
    return None if flow is None else flow.gather


def _gather_id(take: Take) -> FlowId:
    kind = _gather_of(take.subscription) or ""
    return FlowId(kind, take.subscription.id, take.keys.get(kind, ""))


def _cancel_id(take: Take) -> FlowId | None:
    flow = take.subscription.definition.flow
    if flow is None or flow.cancel_on is None:
        return None
    return FlowId("cancel_on", take.subscription.id, take.keys.get("cancel_on", ""))


def _reason(flow: EventFlow, id: FlowId, subscription: Subscription) -> str:
    if id.kind == "batch":
        return "time"
    options = subscription.definition.flow
    policy = None if options is None else options.debounce
    window: Window = flow.state(id)
    most = None if policy is None else policy.max_wait
    return "max_wait" if most is not None and window.due_at == window.opened_at + most else "quiet"


def _give_up(flow: EventFlow, id: FlowId) -> None:
    """The activity of a flow is gone: what waits in it does not run."""
    state = flow.state(id)
    events: Iterable[str] = ()
    if isinstance(state, Window):
        events = [event.event_id for event in state.events]
    elif isinstance(state, QueuedRun):
        events = state.events
    elif isinstance(state, Single) and state.waiting is not None:
        events = [state.waiting.event_id]
    flow.note(id.activity, events, Change(OutcomeState.DROPPED, reason=describe_gone(id.activity)))
    flow.set(id, None, None)


def describe_gone(activity: str) -> str:
    """Why an event is dropped whose activity is deleted."""
    return f"activity {activity!r} is not subscribed to events any more"


def lock_flows(namespace: str, flow: EventFlow, ids: Iterable[FlowId]) -> Script[None]:
    """Lock flows, and make those that are new."""
    wanted = sorted(set(ids))
    if wanted:
        rows: list[Row] = [tuple(id_) for id_ in wanted]
        yield SqlBatch("open_event_flows", rows, (namespace,))
        flow.load(FlowRow(*row) for row in (yield SqlBatch("lock_event_flows", rows, (namespace,))))


def _carry_out(
    namespace: str,
    flow: EventFlow,
    subscriptions: Mapping[str, Subscription],
    direct: Sequence[Take],
    known: dict[str, bytes],
    where: Runs,
) -> Script[Taken]:
    """Ask limits about the runs that are ready and about events that nothing gathers, start runs, store all of it."""
    yield from _read_envelopes(namespace, [event for ready in flow.ready for event in ready.events], known)
    limits = [_limit_id(ready, subscriptions, known) for ready in flow.ready]
    limits += [limit_of(take) for take in direct]
    yield from lock_flows(namespace, flow, [id_ for id_ in limits if id_ is not None])
    singletons = {id_ for id_ in limits if id_ is not None and id_.kind == "singleton"}
    yield from _look_at_singletons(namespace, flow, sorted(singletons), where)
    for take in direct:
        flow.take(take)
    for ready in flow.ready:
        id_ = _limit_id(ready, subscriptions, known)
        policy = None if id_ is None else getattr(subscriptions[ready.activity].definition.flow, id_.kind)
        flow.limit(ready, None if id_ is None else id_.kind, policy, "" if id_ is None else id_.key)
    waiting = [event for ready in flow.starts for event in ready.events]
    yield from _read_envelopes(namespace, waiting, known)
    starts, generations = yield from _make_starts(namespace, flow, subscriptions, known)
    runs = yield from start_runs(namespace, starts, where, generations)
    stops = yield from _cancel(namespace, flow.cancels, where)
    yield from save_flow(namespace, flow)
    if flow.opened:
        yield SqlQuery("announce_events")
    outcomes = tuple((event, _outcome(flow, activity, change)) for (event, activity), change in flow.changes.items())
    return Taken(tuple(runs), tuple(starts), outcomes, flow.opened, tuple(stops))


def limit_of(take: Take) -> FlowId | None:
    """The limit that decides about the run of an event that nothing gathers."""
    flow = take.subscription.definition.flow
    if flow is None or flow.limit is None:
        return None
    return FlowId(flow.limit, take.subscription.id, take.keys.get(flow.limit, ""))


def _limit_id(ready: ReadyRun, subscriptions: Mapping[str, Subscription], known: Mapping[str, bytes]) -> FlowId | None:
    """The limit that decides about a run, by the key of its newest event."""
    subscription = subscriptions[ready.activity]
    flow = subscription.definition.flow
    if ready.unlimited or flow is None or flow.limit is None:
        return None
    keys = ready.keys
    if keys is None and flow.limit in flow.keys and ready.events[-1] in known:
        event = read_event(known[ready.events[-1]])
        keys, _ = subscription.read_keys(event, FilterData(event))
    return FlowId(flow.limit, ready.activity, (keys or {}).get(flow.limit, ""))


def _read_envelopes(namespace: str, events: Iterable[str], known: dict[str, bytes]) -> Script[None]:
    wanted = sorted({event for event in events if event not in known})
    if wanted:
        rows = yield SqlBatch("envelopes_of", [(event,) for event in wanted], (namespace,))
        known |= {id_: bytes(envelope) for id_, envelope in rows}


def _look_at_singletons(namespace: str, flow: EventFlow, ids: Sequence[FlowId], where: Runs) -> Script[None]:
    """Note which of the runs have ended that others wait for."""
    running = {id_: state.running.event_id for id_ in ids if (state := flow.state(id_)).running is not None}
    if not running:
        for id_ in ids:
            flow.look_again(id_)
        return
    runs = yield from _runs_of(namespace, [(id_.activity, event) for id_, event in running.items()])
    going = [run.execution for run in runs.values() if run.started]
    statuses = (yield from where.statuses(going)) if going else {}
    for id_ in ids:
        run = runs.get((id_.activity, running.get(id_, "")))
        status = None if run is None else statuses.get(run.execution)
        if run is None or (run.started and (status is None or not status.live)):
            flow.end(id_)
        else:
            flow.look_again(id_, cancel=where.asks_first and run.started)


def _runs_of(namespace: str, wanted: Sequence[tuple[str, str]]) -> Script[dict[tuple[str, str], EventRun]]:
    """The newest runs of activities for events."""
    rows = yield SqlBatch("outcomes_of", [(event,) for event in sorted({event for _, event in wanted})], (namespace,))
    keys = {(activity, event): run for event, activity, _, _, run, *_ in rows if run is not None}
    chosen = [keys[one] for one in wanted if one in keys]
    found = {run.key: run for run in (yield from newest_runs(namespace, chosen))} if chosen else {}
    return {one: found[keys[one]] for one in wanted if keys.get(one) in found}


def _make_starts(
    namespace: str, flow: EventFlow, subscriptions: Mapping[str, Subscription], known: Mapping[str, bytes]
) -> Script[tuple[list[Start], dict[str, int]]]:
    """The starts of runs, and which generations there were under their keys.

    A window closes once, and an event is taken in once, so a run that is on record is of an earlier event under the
    same id, which does not count any more: the new one is another.
    """
    made: list[tuple[ReadyRun, str, EventEnvelope, list[bytes]]] = []
    for ready in flow.starts:
        envelopes = [known[event] for event in ready.events if event in known]
        if not envelopes:
            flow.note(ready.activity, ready.events, Change(OutcomeState.DROPPED, reason="the event is gone"))
            continue
        try:
            newest = read_event(envelopes[-1])
        except SemelError as error:
            _fail(flow, ready, error)
            continue
        key = ready.run or event_run_id(ready.activity, newest.event_id)
        made.append((ready, key, newest, envelopes))
    before = (yield SqlBatch("runs_by_key", [(key,) for _, key, _, _ in made], (namespace,))) if made else []
    generations = {row[0]: row[1] for row in before}
    starts: list[Start] = []
    for ready, key, newest, envelopes in made:
        try:
            reuse = Reuse.ALWAYS if key in generations else None
            at = from_micros(flow.now)
            starts.append(subscriptions[ready.activity].start_for(key, newest, envelopes, at, ready.why, reuse))
            flow.note(ready.activity, ready.events, Change(OutcomeState.STARTED, run=key))
        except SemelError as error:
            _fail(flow, ready, error)
    return starts, generations


def _fail(flow: EventFlow, ready: ReadyRun, error: SemelError) -> None:
    """A run cannot be made: its events are dropped, with the reason, and hold up no other."""
    reason = f"it cannot be run: {phrase(error)}"[:REASON_LENGTH]
    log.warning("activity %s does not run for %d events: %s", ready.activity, len(ready.events), reason)
    flow.note(ready.activity, ready.events, Change(OutcomeState.DROPPED, reason=reason))


def _cancel(namespace: str, cancels: Sequence[tuple[str, str]], where: Runs) -> Script[list[str]]:
    """Cancel the runs of events, now or, where they are elsewhere, once this is committed."""
    stops: list[str] = []
    if cancels:
        for run in (yield from _runs_of(namespace, cancels)).values():
            stops.append(run.execution)
            if not where.asks_first:
                yield from where.stop(run.execution, Stop.CANCEL)
    return stops


def save_flow(namespace: str, flow: EventFlow) -> Script[None]:
    """Store how flows stand, and what became of events; part of a larger script."""
    new: list[Row] = []
    changed: list[Row] = []
    for (event, activity), change in flow.changes.items():
        row = (event, activity, change.state.value, change.kind, change.key, change.run, change.reason)
        added = flow.new.get((event, activity))
        if added is None:
            changed.append(row)
        else:
            new.append((*row, *added))
    if saved := flow.saved():
        yield SqlBatch("save_event_flows", saved, (namespace,))
    if dropped := flow.dropped():
        yield SqlBatch("drop_event_flows", dropped, (namespace,))
    if new:
        yield SqlBatch("add_outcomes", new, (namespace,))
    if changed:
        yield SqlBatch("change_outcomes", changed, (namespace,))


def _outcome(flow: EventFlow, activity: str, change: Change) -> EventOutcome:
    until = None
    if change.kind is not None:
        until = optional(flow.due(FlowId(change.kind, activity, change.key or "")))
    return EventOutcome(activity, change.state, change.kind, until, change.run, change.reason)


# Reading.


@procedure(ConnectionRole.READ, atomic=True)
def outcomes_of(namespace: str, events: list[str]) -> Script[list[tuple[str, EventOutcome]]]:
    """What became of events, for each activity that gathers or limits them, or is paused."""
    rows = yield SqlBatch("outcomes_of", [(event,) for event in events], (namespace,))
    return [
        (event, EventOutcome(activity, OutcomeState(state), kind, optional(due), run, reason))
        for event, activity, state, kind, run, reason, due in rows
    ]


@procedure(ConnectionRole.READ, atomic=True)
def events_of_run(namespace: str, run: str) -> Script[list[str]]:
    """The ids of the events that a run has gathered, oldest first."""
    return [event for _, event in (yield SqlBatch("events_of_runs", [(run,)], (namespace,)))]


@procedure(ConnectionRole.READ)
def gathered_runs(namespace: str, runs: list[str]) -> Script[dict[str, GatheredRun]]:
    """The events of runs for several, by the keys of the runs; those that are forgotten are missing."""
    events: dict[str, list[str]] = {}
    for run, event in (yield SqlBatch("events_of_runs", [(run,) for run in runs], (namespace,))):
        events.setdefault(run, []).append(event)
    known: dict[str, bytes] = {}
    yield from _read_envelopes(namespace, [event for one in events.values() for event in one], known)
    found = {}
    for run, ids in events.items():
        envelopes = tuple(known[id_] for id_ in ids if id_ in known)
        if envelopes:
            found[run] = GatheredRun(run, read_event(envelopes[-1]), envelopes)
    return found


@procedure(ConnectionRole.READ)
def singleton_executions(namespace: str, ids: list[FlowId], limit: int) -> Script[list[str]]:
    """The executions of runs that are going, which a cluster has to be asked about: of these flows, and of due ones."""
    rows = []
    if ids:
        rows += [FlowRow(*row) for row in (yield SqlBatch("event_flows_of", [tuple(id_) for id_ in ids], (namespace,)))]
    rows += [FlowRow(*row) for row in (yield SqlQuery("find_due_event_flows", (namespace, limit)))]
    flow = EventFlow()
    flow.load(row for row in rows if row.kind == "singleton")
    singletons = [row.id for row in rows if row.kind == "singleton"]
    going = [(id_.activity, flow.state(id_).running) for id_ in singletons]
    wanted = [(activity, running.event_id) for activity, running in going if running is not None]
    if not wanted:
        return []
    return [run.execution for run in (yield from _runs_of(namespace, wanted)).values() if run.started]


def forget_flows(namespace: str, before: int, events: Sequence[str]) -> Script[None]:
    """Forget what became of events that are forgotten, and flows that nothing has come to; part of a larger script."""
    if events:
        yield SqlBatch("forget_outcomes", [(event,) for event in events], (namespace,))
    yield SqlQuery("forget_event_flows", (namespace, before, AT_ONCE))
