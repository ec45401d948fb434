"""Events in tables: scripts that record and route them, and those of the subscriptions that they are routed by."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from semel.contract.events import EventInfo, EventRun, EventState, SubscriptionInfo
from semel.contract.runs import Change, ChangeKind, Why
from semel.contract.times import from_micros, instant, optional
from semel.engine.declarations import Declared, Stored, plan_change
from semel.engine.event_routing import Plan, Router, run_key
from semel.engine.schedules import Owner
from semel.engine.subscriptions import Publication, SubscriptionDefinition, SubscriptionRow
from semel.engine.ticks import Start
from semel.engines.journal.admit import fit_alike, shared_columns
from semel.engines.journal.event_flow_scripts import RouterChanged, Taken, forget_flows, take_events
from semel.engines.journal.event_pauses import withdraw_replayed
from semel.engines.journal.event_runs import newest_runs, run_of, start_runs
from semel.engines.journal.runs import LaneMissing, Runs
from semel.engines.journal.script import Collision, ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

AT_ONCE: Final = 500
"""Events that are routed, and subscriptions that are read, at once."""
NOTHING_TAKEN: Final = Taken()


class KnownEvent(NamedTuple):
    """What the tables know of an event that is delivered again, or routed again; times in microseconds."""

    id: str
    state: str
    activities: str
    problem: str | None
    delivery: int
    fingerprint: bytes
    received_at: int
    deliver_at: int | None
    now: int
    stamp: int
    """Of the router, when this was read."""

    @property
    def ran(self) -> tuple[str, ...]:
        """The activities that have a run for it."""
        return tuple(self.activities.split(",")) if self.activities else ()


class Recorded(NamedTuple):
    """What one transaction did with events."""

    routed: tuple[Plan, ...] = ()
    runs: tuple[EventRun, ...] = ()
    """The runs that were started, or are to be."""
    known: tuple[KnownEvent, ...] = ()
    """Events that had been there before."""
    taken: Taken = NOTHING_TAKEN
    """What became of those that are gathered or limited."""
    found: tuple[EventRun, ...] = ()
    """Runs of events that had been there before, as far as they were looked up."""


@procedure(ConnectionRole.READ)
def read_subscriptions(namespace: str) -> Script[tuple[int, list[SubscriptionRow]]]:
    """All subscriptions, and the stamp that stands for them as they are."""
    while True:
        ((stamp,),) = yield SqlQuery("router_stamp", (namespace,))
        found: list[SubscriptionRow] = []
        while page := (yield SqlQuery("list_subscriptions", (namespace, found[-1].id if found else "", AT_ONCE))):
            found += map(SubscriptionRow._make, page)
        if (yield SqlQuery("router_stamp", (namespace,)))[0][0] == stamp:  # nobody changed them between two pages
            return stamp, found


# Recording and routing.


@procedure(ConnectionRole.READ, atomic=True)
def find_known(namespace: str, publications: Sequence[Publication], router: Router) -> Script[Recorded]:
    """What is known of events, and the runs that they have by themselves; those that are new are not among them."""
    by_id = {one.id: one for one in publications}
    known = yield from _find_known(namespace, list(by_id))
    keys = [run_key(id_, by_id[one.id]) for one in known for id_ in one.ran if id_ not in router.special]
    runs = (yield from newest_runs(namespace, keys, router.functions)) if keys else []
    return Recorded(known=tuple(known), found=tuple([run for run in runs if run.started]))


@procedure(ConnectionRole.ADMIT)
def publish(namespace: str, stamp: int, plans: list[Plan], where: Runs) -> Script[Recorded]:
    """Record events and start their runs, all or nothing. Those that are known are left alone.

    RouterChanged: they were routed by old subscriptions.
    """
    # In one order: two that publish the same events wait for each other, and not both at once.
    wanted = sorted(plans, key=lambda one: one.publication.id)
    rows = yield SqlBatch("add_events", [plan.row() for plan in wanted], (namespace, stamp))
    new = {row[0] for row in rows}
    routed = tuple(plan for plan in wanted if plan.publication.id in new)
    passed_over = [plan.publication.id for plan in wanted if plan.publication.id not in new]
    known = (yield from _find_known(namespace, passed_over)) if passed_over else []
    if len(known) < len(passed_over):
        raise RouterChanged("subscriptions were changed while events were routed: try again.")
    runs = yield from start_runs(namespace, [start for plan in routed for start in plan.starts], where, {})
    taken = yield from _take(namespace, [plan for plan in plans if plan.publication.id in new], where)
    if any(plan.state is EventState.WAITING for plan in routed):
        yield SqlQuery("announce_events")
    return Recorded(routed, tuple(runs), tuple(known), taken)


@procedure(ConnectionRole.ADMIT, atomic=True)
def publish_new(namespace: str, stamp: int, plans: list[Plan], where: Runs) -> Script[Recorded]:
    """Record events that are probably new and start their runs, in one statement, for plans that `are_plain`.

    Collision: some are known, or the key of a run is taken; nothing was written. RouterChanged, LaneMissing: see
    `publish`.
    """
    wanted = sorted(plans, key=lambda one: one.publication.id)
    starts = [start for plan in wanted for start in plan.starts]
    lanes = where.find_lanes(starts) or {}
    numbers: dict[str, int] = {}
    columns: list[Row] = []
    rows: list[Row] = []
    for plan in wanted:
        one, event = plan.publication, plan.publication.event
        run: Row = _NO_RUN
        if plan.starts:
            (start,) = plan.starts
            request, number = start.request, numbers.get(start.schedule)
            if number is None:
                number = numbers[start.schedule] = len(numbers) + 1
                _, *shared = shared_columns(namespace, request.options, lanes[id(request.options)])
                columns.append((*shared, start.schedule, start.version))
            run = (request.id, request.key, request.fingerprint, request.payload, instant(start.slot), number)
        rows.append((one.id, event.type, event.source, one.delivery, plan.future, one.fingerprint, one.envelope, *run))
    shared_lists = [list(column) for column in zip(*columns, strict=True)] if columns else [[] for _ in range(8)]
    found = yield SqlBatch("publish_new", rows, (namespace, stamp, *shared_lists))
    events, *executions = [number for row in found for number in row[:2]]
    if not events and (yield SqlQuery("router_stamp", (namespace,)))[0][0] != stamp:
        raise RouterChanged("subscriptions were changed while events were routed: try again.")
    for lane in set() if events else set(lanes.values()):
        if not (yield SqlQuery("lane_by_id", (lane,))):
            raise LaneMissing("a lane is gone; it is made anew.")
    if events < len(rows) or executions[0] < len(starts):
        raise Collision("some events are known, or the keys of their runs are taken.")
    runs = tuple([run_of(start, start.request.id, 0) for start in starts])
    return Recorded(tuple(wanted), runs)


_NO_RUN: Final[Row] = (None, None, None, None, None, None)


def are_plain(plans: Sequence[Plan]) -> bool:
    """Can these be recorded by one statement: none is kept back or has a problem, and each starts one run or none?"""
    return all(
        len(plan.starts) <= 1
        and plan.problem is None
        and not plan.takes
        and not plan.cancels
        and plan.publication.deliver_at is None
        and (not plan.starts or _is_plain_start(plan.starts[0]))
        and plan.state in (EventState.ROUTED, EventState.UNMATCHED)
        for plan in plans
    )


def _is_plain_start(start: Start) -> bool:
    return start.why is Why.EVENT and fit_alike(start.request.options) and start.request.concurrency_key is None


def _take(namespace: str, plans: Sequence[Plan], where: Runs) -> Script[Taken]:
    """Hand events to activities that gather or limit them; most events have none."""
    takes = [take for plan in plans if plan.takes for take in plan.takes]
    cancels = [cancel for plan in plans if plan.cancels for cancel in plan.cancels]
    if not takes and not cancels:
        return NOTHING_TAKEN
    return (yield from take_events(namespace, takes, cancels, where))


def _find_known(namespace: str, ids: Sequence[str]) -> Script[list[KnownEvent]]:
    return [KnownEvent(*row) for row in (yield SqlBatch("known_events", [(id_,) for id_ in ids], (namespace,)))]


@procedure(ConnectionRole.CONTROL)
def route(
    namespace: str,
    stamp: int,
    plans: list[Plan],
    where: Runs,
    may_route: Callable[[KnownEvent, Plan], bool],
    renew: bool,
) -> Script[Recorded]:
    """Route recorded events, all or nothing, those of them that still may be. RouterChanged: see `publish`.

    `renew`: they count as received now.
    """
    rows = yield SqlBatch("lock_events", [(plan.publication.id,) for plan in plans], (namespace, stamp))
    known = {row[0]: KnownEvent(*row) for row in rows}
    if len(known) < len(plans) and (yield SqlQuery("router_stamp", (namespace,)))[0][0] != stamp:
        raise RouterChanged("subscriptions were changed while events were routed: try again.")
    chosen = [plan for plan in plans if (one := known.get(plan.publication.id)) is not None and may_route(one, plan)]
    chosen = yield from withdraw_replayed(namespace, chosen)
    keys = [(start.request.key,) for plan in chosen for start in plan.starts]
    before = (yield SqlBatch("runs_by_key", keys, (namespace,))) if keys else []
    starts = [start for plan in chosen for start in plan.starts]
    runs = yield from start_runs(namespace, starts, where, {row[0]: row[1] for row in before})
    taken = yield from _take(namespace, chosen, where)
    if chosen:
        changed = [_changed(known[plan.publication.id], plan) for plan in chosen]
        yield SqlBatch("route_events", changed, (namespace,))
    if chosen and renew:
        yield SqlBatch("renew_events", [(plan.publication.id,) for plan in chosen], (namespace,))
    return Recorded(tuple(chosen), tuple(runs), tuple(known.values()), taken)


def _changed(known: KnownEvent, plan: Plan) -> Row:
    """What an event is afterwards: one that had been routed keeps what became of it, and gets further runs."""
    if known.state in (EventState.WAITING, EventState.PARKED):
        return known.id, plan.state.value, ",".join(plan.activities), plan.problem
    ran = dict.fromkeys((*known.ran, *plan.activities))
    return known.id, (EventState.ROUTED if ran else EventState.UNMATCHED).value, ",".join(ran), known.problem


@procedure(ConnectionRole.READ, atomic=True)
def due_events(namespace: str, limit: int) -> Script[list[Row]]:
    """Events that are to be delivered now: id and envelope."""
    return (yield SqlQuery("due_events", (namespace, limit)))


@procedure(ConnectionRole.READ, atomic=True)
def next_due(namespace: str) -> Script[tuple[int | None, int]]:
    """When an event is to be delivered next, and what time it is."""
    ((at, now),) = yield SqlQuery("next_due_event", (namespace,))
    return at, now


@procedure(ConnectionRole.CONTROL)
def park(namespace: str, id_: str, problem: str) -> Script[None]:
    """Set an event aside that waits and cannot be routed."""
    rows = yield SqlBatch("known_events", [(id_,)], (namespace,))
    if rows and KnownEvent(*rows[0]).state == EventState.WAITING:
        yield SqlBatch("route_events", [(id_, EventState.PARKED.value, "", problem)], (namespace,))


@procedure(ConnectionRole.CONTROL, atomic=True)
def count_deliveries(namespace: str, rows: list[Row]) -> Script[None]:
    """Write down how many deliveries of events did not count: id, times, when the last one was."""
    yield SqlBatch("count_deliveries", rows, (namespace,))


@procedure(ConnectionRole.CONTROL)
def forget(namespace: str, keep: int) -> Script[int]:
    """Forget events that are older than so many microseconds; how many there were."""
    _, now = yield from next_due.script(namespace)
    gone = [row[0] for row in (yield SqlQuery("forget_events", (namespace, now - keep, AT_ONCE)))]
    yield from forget_flows(namespace, now - keep, gone)
    return len(gone)


# Reading.


@procedure(ConnectionRole.READ, atomic=True)
def get(namespace: str, id_: str) -> Script[tuple[EventInfo, bytes] | None]:
    """An event, and its envelope."""
    rows = yield SqlQuery("event_of", (namespace, id_))
    return (_info_of(rows[0]), bytes(rows[0][-1])) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def page(
    namespace: str, state: str | None, type_: str | None, before: str | None, limit: int
) -> Script[list[EventInfo]]:
    """Events, newest first."""
    return [_info_of(row) for row in (yield SqlQuery("list_events", (namespace, state, type_, before, limit)))]


@procedure(ConnectionRole.READ, atomic=True)
def kept(namespace: str, since: int, after: tuple[int, str], until: int, limit: int) -> Script[list[Row]]:
    """Events that have been routed, oldest first: id, received_at, activities, envelope."""
    return (yield SqlQuery("kept_events", (namespace, since, *after, until, limit)))


@procedure(ConnectionRole.READ, atomic=True)
def runs_of(namespace: str, keys: list[str], functions: Mapping[str, str]) -> Script[list[EventRun]]:
    """The newest run under each of these keys, with the function that its activity runs."""
    return (yield from newest_runs(namespace, keys, functions))


@procedure(ConnectionRole.READ)
def count(namespace: str, limit: int) -> Script[dict[EventState, tuple[int, str | None]]]:
    """How many events there are in each state, up to a limit, and one of them."""
    found = {}
    for state in EventState:
        ((number, id_),) = yield SqlQuery("count_events", (namespace, state.value, limit))
        found[state] = int(number), id_
    return found


@procedure(ConnectionRole.READ, atomic=True)
def count_state(namespace: str, state: EventState, limit: int) -> Script[int]:
    """How many events there are in a state, up to a limit."""
    ((number, _),) = yield SqlQuery("count_events", (namespace, state.value, limit))
    return int(number)


@procedure(ConnectionRole.READ, atomic=True)
def get_subscription(namespace: str, id_: str) -> Script[SubscriptionRow | None]:
    """One subscription."""
    rows = yield SqlQuery("subscription_of", (namespace, id_))
    return SubscriptionRow(*rows[0]) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def page_subscriptions(namespace: str, after: str, limit: int) -> Script[list[SubscriptionRow]]:
    """Subscriptions, by their ids."""
    return [SubscriptionRow(*row) for row in (yield SqlQuery("list_subscriptions", (namespace, after, limit)))]


# Subscriptions that are declared.


def apply_subscriptions(
    namespace: str, declared: Sequence[Declared], prune: Collection[Owner], take_over: bool, write: bool
) -> Script[list[Change]]:
    """Create, change and delete subscriptions; part of a larger script."""
    changes: list[Change] = []
    for one in declared:
        rows = yield SqlQuery("lock_subscription" if write else "subscription_of", (namespace, one.id))
        change = plan_change(one, Stored(*rows[0][1:4]) if rows else None, take_over)
        changes.append(change)
        if write and change.kind is ChangeKind.CREATE:
            yield SqlQuery("add_subscription", (namespace, one.id, one.owner, one.definition.to_bytes()))
        elif write and change.kind is ChangeKind.CHANGE:
            yield SqlQuery("change_subscription", (namespace, one.id, one.owner, one.definition.to_bytes()))
    if prune:
        changes += yield from _prune(namespace, {one.id for one in declared}, prune, write)
    if write and any(change.kind in (ChangeKind.CREATE, ChangeKind.CHANGE, ChangeKind.DELETE) for change in changes):
        yield SqlQuery("set_router_stamp", (namespace, secrets.randbits(62)))
    return changes


def _prune(namespace: str, known: set[str], owners: Collection[Owner], write: bool) -> Script[list[Change]]:
    """Delete those of some owners that are not declared any more."""
    changes, after = [], ""
    while rows := (yield SqlQuery("list_subscriptions", (namespace, after, AT_ONCE))):
        after = rows[-1][0]
        for row in map(SubscriptionRow._make, rows):
            if row.owner in owners and row.id not in known:
                changes.append(Change(ChangeKind.DELETE, row.id, what="event"))
                if write:
                    yield SqlQuery("delete_subscription", (namespace, row.id))
                    yield SqlQuery("due_event_flows", (namespace, row.id))
    return changes


def info_of_subscription(row: SubscriptionRow) -> SubscriptionInfo:
    """A subscription as people see it."""
    definition = SubscriptionDefinition.from_bytes(row.definition, row.id)
    options = definition.options
    types = tuple(dict.fromkeys(type_ for pattern in definition.patterns for type_ in pattern.types))
    return SubscriptionInfo(
        row.id,
        options.kind,
        options.name,
        options.queue,
        types,
        row.version,
        row.owner,
        from_micros(row.created_at),
        from_micros(row.changed_at),
        () if definition.flow is None else definition.flow.given,
        optional(row.paused_at),
        row.note,
    )


def _info_of(row: Row) -> EventInfo:
    id_, type_, source, state, activities, problem, future, received, deliver, duplicates, duplicate_at, _ = row
    return EventInfo(
        id_,
        type_,
        source,
        EventState(state),
        tuple(activities.split(",")) if activities else (),
        problem,
        bool(future),
        from_micros(received),
        optional(deliver),
        duplicates,
        optional(duplicate_at),
    )
