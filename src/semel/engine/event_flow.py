"""Asks the machines of `contract/event_flow.py` about events, by the states that a transaction has locked.

What a transaction does with events that are gathered or limited has two parts: first every event is taken in, or a flow
that is due is closed, and that makes runs which are ready; then limits decide about those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from semel.codec import decoder_of
from semel.contract.event_flow import (
    Batch,
    Cancelled,
    Debounce,
    FlowEvent,
    Single,
    Singleton,
    Start,
    StartLimit,
    Starts,
    Window,
    admit_uncancelled,
    batch,
    cancel_runs,
    close_window,
    debounce,
    end_singleton,
    limit_rate,
    take_singleton,
    throttle,
)
from semel.contract.events import OutcomeState
from semel.contract.runs import Why
from semel.contract.times import instant
from semel.engine.subscriptions import Publication
from semel.triggers.ids import WindowKind, window_run_id

if TYPE_CHECKING:
    from semel.engine.event_routing import Subscription

LOOK_SOON: Final = 250_000
"""While an event waits for a run to end, somebody looks so often whether it has; in microseconds."""
GATHERING: Final = ("debounce", "batch")
_ARRIVALS: Final = 1000
"""Arrivals are counted within a microsecond."""


class FlowId(NamedTuple):
    """Which flow of which activity. Transactions lock them in this order, those of limits after all others."""

    kind: str
    activity: str
    key: str


class FlowRow(NamedTuple):
    """A flow as the tables hold it; times in microseconds."""

    kind: str
    activity: str
    key: str
    state: bytes
    due_at: int | None
    now: int

    @property
    def id(self) -> FlowId:
        """Which flow it is."""
        return FlowId(self.kind, self.activity, self.key)


class QueuedRun(msgspec.Struct, frozen=True):
    """A run that starts later, as stored: its events, oldest first."""

    events: tuple[str, ...] = ()


class CancelRequest(msgspec.Struct, frozen=True):
    """An event that cancels runs, as stored until they are cancelled: their key, and what it came after."""

    key: str = ""
    happened_at: int = 0
    arrival: int = 0


class Pause(msgspec.Struct, frozen=True):
    """An activity is paused, as stored. Once it is resumed, what came meanwhile is taken in first."""

    resumed: bool = False


_STATES: Final[Mapping[str, type[Any]]] = {
    "debounce": Window,
    "batch": Window,
    "throttle": Starts,
    "rate_limit": Starts,
    "singleton": Single,
    "start": QueuedRun,
    "cancel_on": Cancelled,
    "cancel": CancelRequest,
    "pause": Pause,
}
_READ: Final = {kind: decoder_of(type_).decode for kind, type_ in _STATES.items()}


class Take(NamedTuple):
    """An event that an activity takes in."""

    subscription: Subscription
    publication: Publication
    keys: Mapping[str, str]
    """The key of the event for each option that goes by one."""
    run: str
    """The key of its run, if it has one of its own."""
    why: Why


class Cancel(NamedTuple):
    """An event that cancels runs of an activity."""

    subscription: Subscription
    publication: Publication
    key: str


class ReadyRun(NamedTuple):
    """A run that may start as far as its events go: limits have not been asked yet."""

    activity: str
    run: str
    """Its key; blank: it is the key of its only event, which has to be read."""
    events: tuple[str, ...]
    """Oldest first."""
    event: FlowEvent
    """The event of a run for one; for a window, one that stands for it."""
    keys: Mapping[str, str] | None
    """Of its event; None: they have to be read from the newest one."""
    why: Why = Why.EVENT
    unlimited: bool = False
    """The limit has been asked before."""


class Change(NamedTuple):
    """What became of an event for an activity."""

    state: OutcomeState
    kind: str | None = None
    key: str | None = None
    run: str | None = None
    reason: str | None = None


class EventFlow:
    """The flows that one transaction looks at, and all that is to be stored of them."""

    def __init__(self) -> None:
        self.now = 0
        self.ready: list[ReadyRun] = []
        self.starts: list[ReadyRun] = []
        """Runs that start now."""
        self.cancels: list[tuple[str, str]] = []
        """Activities, and events whose runs are to be cancelled."""
        self.new: dict[tuple[str, str], tuple[int, int, str | None]] = {}
        """Of events and activities: arrival, when it happened, and the key by which it is cancelled."""
        self.changes: dict[tuple[str, str], Change] = {}
        self.opened = False
        """Some flow has to be looked at that had not before."""
        self._states: dict[FlowId, Any] = {}
        self._due: dict[FlowId, int | None] = {}
        self._changed: dict[FlowId, None] = {}
        self._arrivals = 0

    def load(self, rows: Iterable[FlowRow]) -> None:
        """Read flows that are locked."""
        for row in rows:
            self.now = max(self.now, row.now)
            self._states[row.id] = _READ[row.kind](row.state) if row.state else _STATES[row.kind]()
            self._due[row.id] = row.due_at

    def state(self, id: FlowId) -> Any:
        """How a flow stands."""
        return self._states[id]

    def due(self, id: FlowId) -> int | None:
        """When somebody has to look at a flow."""
        return self._due.get(id)

    def set(self, id: FlowId, state: Any, due_at: int | None) -> None:
        """A flow stands differently from now on. None: it is over."""
        self.opened = self.opened or (due_at is not None and self._due.get(id) is None)
        self._states[id] = state
        self._due[id] = due_at
        self._changed[id] = None

    def saved(self) -> list[tuple[object, ...]]:
        """Flows that stand differently, as rows of the statement `save_event_flows`."""
        found = [(id_, self._states[id_]) for id_ in sorted(self._changed)]
        return [(*id_, msgspec.json.encode(state), self._due[id_]) for id_, state in found if state is not None]

    def dropped(self) -> list[tuple[object, ...]]:
        """Flows that are over, as rows of the statement `drop_event_flows`."""
        return [tuple(id_) for id_ in sorted(self._changed) if self._states[id_] is None]

    def note(self, activity: str, events: Iterable[str], change: Change) -> None:
        """What became of events."""
        for event in events:
            self.changes[event, activity] = change

    # Taking events in.

    def take(self, take: Take) -> None:
        """Take an event in: it is held in a window, dropped, or its run is ready."""
        publication, activity = take.publication, take.subscription.id
        flow = take.subscription.definition.flow
        gather = None if flow is None else flow.gather
        if flow is None or gather is None:
            event = self._arrive(publication, None)
            self._add(take, event)
            if self._is_cancelled(take, event):
                return
            self.ready.append(ReadyRun(activity, take.run, (publication.id,), event, take.keys, take.why))
            return
        id_ = FlowId(gather, activity, take.keys.get(gather, ""))
        window: Window = self.state(id_)
        event = self._arrive(publication, window)
        if self._is_cancelled(take, event):
            self._add(take, event)
            return
        if gather == "debounce":
            policy = take.subscription.fit(cast(Debounce, flow.debounce))
            after, outcome = debounce(policy, window, event, event.arrived_at)
        else:
            after, outcome = batch(take.subscription.fit(cast(Batch, flow.batch)), window, event, event.arrived_at)
        self.set(id_, after, after.due_at)
        if outcome.verdict == "known":
            return
        self._add(take, event)
        if outcome.verdict == "dropped":
            self.note(activity, [publication.id], Change(OutcomeState.DROPPED, reason=f"{gather}: {outcome.reason}"))
        else:
            self.note(activity, [publication.id], Change(OutcomeState.GATHERED, *_place(id_)))
        for start in outcome.starts:
            self._close(id_, start)

    def keep(self, take: Take) -> None:
        """Keep an event back until its activity is resumed."""
        event = self._arrive(take.publication, None)
        self._add(take, event)
        place = _place(FlowId("pause", take.subscription.id, ""))
        self.note(take.subscription.id, [event.event_id], Change(OutcomeState.PAUSED, *place))

    def hold(self, id: FlowId) -> None:
        """Do not look at a flow before its activity is resumed."""
        self.set(id, self.state(id), None)

    def _is_cancelled(self, take: Take, event: FlowEvent) -> bool:
        """Did it happen before an event that cancels its run? Then it is dropped."""
        flow = take.subscription.definition.flow
        if flow is None or flow.cancel_on is None:
            return False
        state = self.state(FlowId("cancel_on", take.subscription.id, take.keys.get("cancel_on", "")))
        outcome = admit_uncancelled(state, event)
        if outcome.verdict == "dropped":
            change = Change(OutcomeState.DROPPED, reason=f"cancel_on: {outcome.reason}")
            self.note(take.subscription.id, [event.event_id], change)
        return outcome.verdict == "dropped"

    def cancel(self, cancel: Cancel) -> None:
        """Take in an event that cancels runs: what happened before it does not start any more, and is cancelled."""
        activity, id_ = cancel.subscription.id, cancel.publication.id
        event = self._arrive(cancel.publication, None)
        flow = FlowId("cancel_on", activity, cancel.key)
        after, _ = cancel_runs(self.state(flow), event, ())
        self.set(flow, after, None)
        self.set(FlowId("cancel", activity, id_), CancelRequest(cancel.key, *event.order), self.now)
        self.new[id_, activity] = event.arrival, event.order[0], None
        self.note(activity, [id_], Change(OutcomeState.CANCELS))

    def withdraw(self, id: FlowId, events: Collection[str], reason: str) -> None:
        """Take events out of a flow in which they wait."""
        state = self.state(id)
        if isinstance(state, Window):
            left = tuple(one for one in state.events if one.event_id not in events)
            self.set(
                id,
                Window(left, state.opened_at, state.due_at, state.last) if left else Window(last=state.last),
                state.due_at if left else None,
            )
        elif isinstance(state, QueuedRun):
            stay = tuple(one for one in state.events if one not in events)
            self.set(id, QueuedRun(stay) if stay else None, self.due(id) if stay else None)
        elif isinstance(state, Single) and state.waiting is not None and state.waiting.event_id in events:
            self.set(id, Single(state.running), None)
        self.note(id.activity, events, Change(OutcomeState.DROPPED, reason=reason))

    def _arrive(self, publication: Publication, window: Window | None) -> FlowEvent:
        """An event, later than all that came before it. One that is dated in the future counts as of now."""
        known = () if window is None else (*window.events, *((window.last,) if window.last is not None else ()))
        now = max((self.now, *(one.arrived_at for one in known)))
        self._arrivals += 1
        arrival = max((now * _ARRIVALS + self._arrivals, *(one.arrival + 1 for one in known)))
        time = publication.event.time
        happened_at = None if time is None else min(instant(time), now)
        return FlowEvent(publication.id, now, arrival, happened_at, len(publication.envelope) + 1)

    def _add(self, take: Take, event: FlowEvent) -> None:
        flow = take.subscription.definition.flow
        key = None if flow is None or flow.cancel_on is None else take.keys.get("cancel_on", "")
        self.new[event.event_id, take.subscription.id] = event.arrival, event.order[0], key

    def close(self, id: FlowId, reason: str) -> None:
        """Make the run of a window ready that is due."""
        after, outcome = close_window(self.state(id), self.now, cast(Any, reason))
        self.set(id, after, after.due_at)
        for start in outcome.starts:
            self._close(id, start)

    def _close(self, id: FlowId, start: Start) -> None:
        run = window_run_id(id.activity, cast(WindowKind, id.kind), id.key or None, start.window or "")
        event = FlowEvent(start.window or "", self.now, self.now * _ARRIVALS)
        self.ready.append(ReadyRun(id.activity, run, start.events, event, None))

    def release(self, id: FlowId) -> None:
        """Start a run that was put off."""
        queued: QueuedRun = self.state(id)
        self.set(id, None, None)
        event = FlowEvent(queued.events[-1], self.now, self.now * _ARRIVALS)
        self.ready.append(ReadyRun(id.activity, id.key, queued.events, event, None, unlimited=True))

    # Limits.

    def limit(self, ready: ReadyRun, limit: str | None, policy: Any, key: str) -> None:
        """Start a run, put it off, or drop its events."""
        if limit is None or ready.unlimited:
            self._start(ready)
            return
        id_ = FlowId(limit, ready.activity, key)
        match policy:
            case Singleton():
                self._limit_to_one(id_, policy, ready)
            case StartLimit():
                decide = throttle if limit == "throttle" else limit_rate
                after, outcome = decide(policy, self.state(id_), ready.event, self.now)
                self.set(id_, after, None)
                if outcome.verdict == "dropped":
                    self.note(ready.activity, ready.events, Change(OutcomeState.DROPPED, reason=outcome.reason))
                elif limit == "throttle" and (at := outcome.starts[0].at) > self.now:
                    queue = FlowId("start", ready.activity, ready.run)
                    self.set(queue, QueuedRun(ready.events), at)
                    self.note(ready.activity, ready.events, Change(OutcomeState.QUEUED, *_place(queue)))
                else:
                    self._start(ready)

    def _limit_to_one(self, id: FlowId, policy: Singleton, ready: ReadyRun) -> None:
        state: Single = self.state(id)
        after, outcome = take_singleton(policy, state, _after(state, ready.event), self.now)
        self.set(id, after, None if after.waiting is None else self._due.get(id) or self.now + LOOK_SOON)
        self.note(ready.activity, outcome.superseded, Change(OutcomeState.DROPPED, reason=_newer(ready.event)))
        if any(self._unstart(ready.activity, event, _newer(ready.event)) for event in outcome.cancels):
            self.set(id, Single(after.waiting), None)
            self._start(ready)
            return
        self.cancels += [(ready.activity, event) for event in outcome.cancels]
        if outcome.verdict == "dropped":
            self.note(ready.activity, ready.events, Change(OutcomeState.DROPPED, reason=outcome.reason))
        elif outcome.verdict == "held":
            self.note(ready.activity, ready.events, Change(OutcomeState.QUEUED, *_place(id)))
        elif outcome.starts:
            self._start(ready)

    def end(self, id: FlowId) -> None:
        """The run of a singleton that was going has ended: what waits for it starts."""
        state: Single = self.state(id)
        if state.running is None:
            return
        after, outcome = end_singleton(state, state.running.event_id, self.now)
        self.set(id, after, None)
        for start in outcome.starts:
            event = cast(FlowEvent, state.waiting)
            self.ready.append(ReadyRun(id.activity, "", start.events, event, None, unlimited=True))

    def look_again(self, id: FlowId, *, cancel: bool = False) -> None:
        """The run of a singleton is still going: look again soon, if an event waits for its end.

        `cancel`: whoever put that event in line may not have been able to cancel the run, so it is cancelled again.
        """
        state: Single = self.state(id)
        if cancel and state.running is not None and state.waiting is not None:
            self.cancels.append((id.activity, state.running.event_id))
        self.set(id, state, None if state.waiting is None else self.now + LOOK_SOON)

    def _unstart(self, activity: str, event: str, reason: str) -> bool:
        """Do not start a run that was to start in this transaction: its events are dropped. False: there is none."""
        for at, one in enumerate(self.starts):
            if one.activity == activity and one.event.event_id == event:
                self.note(activity, one.events, Change(OutcomeState.DROPPED, reason=reason))
                del self.starts[at]
                return True
        return False

    def _start(self, ready: ReadyRun) -> None:
        self.starts.append(ready)
        self.note(ready.activity, ready.events, Change(OutcomeState.STARTED, run=ready.run))


def _place(id: FlowId) -> tuple[str, str]:
    return id.kind, id.key


def _after(state: Single, event: FlowEvent) -> FlowEvent:
    """An event that comes after those that are known, by its arrival."""
    known = [one for one in (state.running, state.waiting) if one is not None]
    arrived_at = max([event.arrived_at, *(one.arrived_at for one in known)])
    arrival = max([event.arrival, *(one.arrival + 1 for one in known)])
    return msgspec.structs.replace(event, arrived_at=arrived_at, arrival=arrival)


def _newer(event: FlowEvent) -> str:
    return f"singleton: event {event.event_id!r} is newer"
