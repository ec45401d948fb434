"""What becomes of events that match: gathered into one run (debounce, batch), put off (throttle), or not run at all.

Each kind of flow is a pure function `(policy, state, event or end, now) -> (new state, Outcome)`. The caller keeps one
state for each activity and key, commits it together with what the outcome says, and asks once for each event. While an
activity is paused nobody asks; what came meanwhile is asked about afterwards. Times are microseconds. `due_at` of a
state says when to ask again, also if the answer to the last call got lost: whoever reads the state next finds it.

Events have an order of their own: by the time at which they happened, those without one by when they arrived, and by
their arrival where that is the same. Nothing older ever takes the place of something newer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

MOST_EVENTS: Final = 1000
"""Events that one run is given at most: the window ends with the last of them, and the next event opens another."""
MOST_BYTES: Final = 1 << 20
"""Bytes of events that one run is given at most: an event that would exceed them opens another window."""
MOST_STARTS: Final = 1000
"""Starts within a period that a limit can count."""
LONGEST_WAIT: Final = 365 * 86_400_000_000
"""A throttled event that would have to wait longer is dropped."""

CloseReason = Literal["quiet", "max_wait", "size", "time", "bytes"]
"""Why a window ended: nothing came any more, it had waited long enough, or it was full."""


class FlowEvent(msgspec.Struct, frozen=True):
    """What a flow has to know of an event."""

    event_id: str
    arrived_at: int
    arrival: int
    """Counts the events as they arrive."""
    happened_at: int | None = None
    """The event's own time."""
    size: int = 0
    """Bytes of its JSON."""

    @property
    def order(self) -> tuple[int, int]:
        """Where it stands among the events of its kind."""
        return (self.arrived_at if self.happened_at is None else self.happened_at, self.arrival)


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run for these events, in their own order: the last is the newest.

    `window` is the event that opened the window, from which the id of a debounced or batched run is made: an event
    opens one window only, so the id is the same whoever closes it, and no other run has it. For a run of a single event
    it is None.
    """

    events: tuple[str, ...]
    at: int
    window: str | None = None
    reason: CloseReason | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What to do now, and what became of the event.

    An event is `started` if a run of this outcome has it, `held` in a window or until another run ends, `known` if it
    had been taken in before, `dropped` with a reason. `superseded` are events that were held and will not run.
    """

    verdict: Literal["started", "held", "known", "dropped", "nothing"]
    starts: tuple[Start, ...] = ()
    cancels: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    reason: str | None = None


NOTHING: Final = Outcome("nothing")


# Debounce and batch: many events, one run


class Window(msgspec.Struct, frozen=True):
    """Events that are gathered for one run, as stored: bounded by MOST_EVENTS. `due_at` is when the run starts."""

    events: tuple[FlowEvent, ...] = ()
    opened_at: int = 0
    due_at: int | None = None
    last: FlowEvent | None = None
    """The newest event that a run has been started for."""

    @property
    def size(self) -> int:
        return sum(event.size for event in self.events)

    @property
    def newest(self) -> FlowEvent | None:
        return max(self.events, key=lambda event: event.order, default=None)


@dataclass(frozen=True, slots=True)
class Debounce:
    """One run after `wait` without a newer event, and `max_wait` after the first one in any case."""

    wait: int
    max_wait: int | None = None
    most_bytes: int = MOST_BYTES


@dataclass(frozen=True, slots=True)
class Batch:
    """One run for every `most` events, or for those that came within `wait` after the first."""

    most: int
    wait: int
    most_bytes: int = MOST_BYTES


def debounce(policy: Debounce, state: Window, event: FlowEvent, now: int) -> tuple[Window, Outcome]:
    """Take an event in. One that is older than the newest goes along, but neither leads nor puts the run off.

    One that is older than what has already run is dropped: its run would undo a newer one.
    """
    if any(held.event_id == event.event_id for held in state.events):
        return state, Outcome("known")
    state, before = close_window(state, now, _debounce_reason(policy, state))
    if state.last is not None and event.order < state.last.order:
        return state, Outcome(
            "dropped", before.starts, reason=f"it is older than event {state.last.event_id!r}, which has run"
        )
    state, full = _make_room(policy.most_bytes, state, event, now)
    newest, opened_at = state.newest, state.opened_at if state.events else now
    due_at = state.due_at
    if due_at is None or newest is None or event.order > newest.order:
        due_at = max(now + policy.wait, due_at or 0)
        if policy.max_wait is not None:
            due_at = min(due_at, opened_at + policy.max_wait)
    state = Window((*state.events, event), opened_at, due_at, state.last)
    return _hold_or_close(state, (*before.starts, *full), MOST_EVENTS, now)


def batch(policy: Batch, state: Window, event: FlowEvent, now: int) -> tuple[Window, Outcome]:
    """Take an event in. The one that makes the batch full starts its run."""
    if any(held.event_id == event.event_id for held in state.events):
        return state, Outcome("known")
    state, before = close_window(state, now, "time")
    state, full = _make_room(policy.most_bytes, state, event, now)
    opened_at = state.opened_at if state.events else now
    state = Window((*state.events, event), opened_at, opened_at + policy.wait, state.last)
    return _hold_or_close(state, (*before.starts, *full), min(policy.most, MOST_EVENTS), now)


def close_window(state: Window, now: int, reason: CloseReason) -> tuple[Window, Outcome]:
    """Start the run of a window that is due; nothing, if none is."""
    if state.due_at is None or state.due_at > now:
        return state, NOTHING
    return _close(state, now, reason)


def close_debounce(policy: Debounce, state: Window, now: int) -> tuple[Window, Outcome]:
    """Start the run of a debounce that is due; nothing, if none is."""
    return close_window(state, now, _debounce_reason(policy, state))


def close_batch(state: Window, now: int) -> tuple[Window, Outcome]:
    """Start the run of a batch that is due; nothing, if none is."""
    return close_window(state, now, "time")


def _debounce_reason(policy: Debounce, state: Window) -> CloseReason:
    waited = policy.max_wait is not None and state.due_at == state.opened_at + policy.max_wait
    return "max_wait" if waited else "quiet"


def _close(state: Window, now: int, reason: CloseReason) -> tuple[Window, Outcome]:
    events = sorted(state.events, key=lambda event: event.order)
    start = Start(tuple(event.event_id for event in events), now, state.events[0].event_id, reason)
    last = events[-1] if state.last is None or events[-1].order > state.last.order else state.last
    return Window(last=last), Outcome("started", (start,))


def _make_room(most_bytes: int, state: Window, event: FlowEvent, now: int) -> tuple[Window, tuple[Start, ...]]:
    """Close the window before an event that would make it hold too many bytes."""
    if not state.events or state.size + event.size <= most_bytes:
        return state, ()
    state, outcome = _close(state, now, "bytes")
    return state, outcome.starts


def _hold_or_close(state: Window, starts: tuple[Start, ...], most: int, now: int) -> tuple[Window, Outcome]:
    if len(state.events) < most:
        return state, Outcome("held", starts)
    state, outcome = _close(state, now, "size")
    return state, Outcome("started", (*starts, *outcome.starts))


# Throttle and rate limit: at most so many starts in a period


class Starts(msgspec.Struct, frozen=True):
    """When the last runs started or will start, oldest first, as stored: at most as many as the limit."""

    times: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StartLimit:
    """At most `limit` starts in any stretch of `period`."""

    limit: int
    period: int


def throttle(policy: StartLimit, state: Starts, event: FlowEvent, now: int) -> tuple[Starts, Outcome]:
    """Start it now, or as soon as the limit lets it, behind those that came before. Nobody has to ask again."""
    times = state.times[-policy.limit :]
    at = max(now, times[-1]) if times else now
    if len(times) == policy.limit:
        at = max(at, times[0] + policy.period)
    if at - now > LONGEST_WAIT:
        return state, Outcome("dropped", reason="by its throttle it would have to wait longer than a year")
    return Starts((*times, at)[-policy.limit :]), Outcome("started", (Start((event.event_id,), at),))


def limit_rate(policy: StartLimit, state: Starts, event: FlowEvent, now: int) -> tuple[Starts, Outcome]:
    """Start it now, or drop it with the reason if as many have started in the last period."""
    now = max(now, state.times[-1]) if state.times else now
    times = tuple(at for at in state.times if at > now - policy.period)[-policy.limit :]
    if len(times) >= policy.limit:
        free = (times[0] + policy.period - now) / 1_000_000
        return Starts(times), Outcome(
            "dropped", reason=f"rate_limit: {policy.limit} have started; the next may in {free:g} s"
        )
    return Starts((*times, now)), Outcome("started", (Start((event.event_id,), now),))


# Singleton: one run at a time


class Single(msgspec.Struct, frozen=True):
    """The event whose run is going, and the one that waits for the end of it, as stored."""

    running: FlowEvent | None = None
    waiting: FlowEvent | None = None


@dataclass(frozen=True, slots=True)
class Singleton:
    """What happens to an event that comes while a run is going: it is skipped, or the run is cancelled for it."""

    mode: Literal["skip", "cancel"]


def take_singleton(policy: Singleton, state: Single, event: FlowEvent, now: int) -> tuple[Single, Outcome]:
    """Start it, drop it, or cancel the run that is going, after the end of which it starts. Of those that wait only the
    newest does; an older event cancels nothing."""
    running, waiting = state.running, state.waiting
    if event.event_id in {one.event_id for one in (running, waiting) if one is not None}:
        return state, Outcome("known")
    if running is None:
        return Single(event), Outcome("started", (Start((event.event_id,), now),))
    if policy.mode == "skip":
        return state, Outcome("dropped", reason=f"singleton: the run of event {running.event_id!r} is still going")
    newest = waiting or running
    if event.order < newest.order:
        return state, Outcome("dropped", reason=f"singleton: event {newest.event_id!r} is newer")
    if waiting is not None:
        return Single(running, event), Outcome("held", superseded=(waiting.event_id,))
    return Single(running, event), Outcome("held", cancels=(running.event_id,))


def end_singleton(state: Single, event_id: str, now: int) -> tuple[Single, Outcome]:
    """The run of an event has ended, however it did: what waits for it starts. The end of any other run is no news."""
    if state.running is None or state.running.event_id != event_id:
        return state, NOTHING
    if state.waiting is None:
        return Single(), NOTHING
    return Single(state.waiting), Outcome("started", (Start((state.waiting.event_id,), now),))


# Cancellation by an event


class Cancelled(msgspec.Struct, frozen=True):
    """The newest event that cancels, as stored: what happened before it does not start any more."""

    by: FlowEvent | None = None


def cancel_runs(state: Cancelled, event: FlowEvent, active: tuple[FlowEvent, ...]) -> tuple[Cancelled, Outcome]:
    """An event that cancels has come: runs of events that happened before it are cancelled, newer ones go on."""
    cancels = tuple(one.event_id for one in active if one.order < event.order)
    newer = state.by is None or event.order > state.by.order
    return Cancelled(event) if newer else state, Outcome("known" if not cancels else "held", cancels=cancels)


def admit_uncancelled(state: Cancelled, event: FlowEvent) -> Outcome:
    """May the event start a run? Not if it happened before an event that cancels, even if that arrived first."""
    if state.by is not None and event.order < state.by.order:
        return Outcome("dropped", reason=f"it was cancelled by event {state.by.event_id!r}")
    return NOTHING
