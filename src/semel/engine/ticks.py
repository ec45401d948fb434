"""What a look at one schedule comes to: the runs to start, the slots that were skipped, the state that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from semel.codec import encode
from semel.contract.fingerprint import fingerprint
from semel.contract.lifecycle import Status
from semel.contract.runs import Run, RunWindow, Why
from semel.contract.slot_policy import Overlap, Skipped, SkipReason, SlotPolicy, Stop
from semel.contract.slots import Pause, ScheduleState, SlotRun, Tick, due, edit
from semel.contract.times import from_micros, instant, optional
from semel.contract.timing import Timing
from semel.engine.ids import new_id
from semel.engine.schedules import (
    ActiveRun,
    ScheduleDefinition,
    ScheduleRow,
    SkippedRange,
    StoredState,
    read_state,
)
from semel.engine.start_request import StartRequest
from semel.errors import PayloadTooLarge
from semel.triggers.ids import manual_run_id, stored_slot_run_id

LOOK_SOON: Final = 250_000
"""While slots wait for a run to end, somebody looks so often whether it has; in microseconds."""
LOOK_EVERY: Final = 1_000_000
"""While it counts whether a run fails, somebody looks so often; in microseconds."""
NEXT_SLOTS: Final = 3
"""So many of the slots that follow are told to a run."""
_NO_SLOTS: Final = (SkipReason.EXCLUDED, SkipReason.BEFORE_START)
"""Times that would have been slots. Ranges of them may lie across those of slots."""

PAUSED_ITSELF: Final = "paused by itself"
"""How the note begins of a schedule that has failed too often."""

Ended = Mapping[str, tuple[Status, datetime | None]]
"""How executions stand, and when they ended. One that is not in it is not known any more."""
Begun = Mapping[str, bool]
"""Whether executions have begun; one that has not is dropped, and will not. One that is not in it: it is not known."""


class Start(NamedTuple):
    """A run that is to be started."""

    request: StartRequest
    schedule: str
    slot: datetime
    why: Why
    version: int
    window_start: datetime | None
    slots: int
    generation: int = 0
    """How often this slot has had a run before."""


class Advance(NamedTuple):
    """What a look at a schedule comes to; all of it is stored in one transaction."""

    id: str
    cursor: int
    due_at: int | None
    state: StoredState
    """Without the runs that are started now: see `add_active`."""
    starts: tuple[Start, ...]
    skipped: tuple[Skipped, ...]
    """Each range that goes on has its first slot and its whole count."""
    stop: Stop | None
    stopped: tuple[str, ...]
    """The executions that `stop` is about."""
    ahead: timedelta | None
    paused_now: bool = False
    """It has paused itself, after so many failures."""
    note: str | None = None
    """Why it has."""
    skipped_now: tuple[Skipped, ...] = ()
    """What this look has skipped, without what was in the same range before."""

    def add_active(self, executions: Sequence[str]) -> StoredState:
        """The state with the executions of the starts, in their order."""
        if not executions:
            return self.state
        new = [_active(execution, start) for execution, start in zip(executions, self.starts, strict=True)]
        return msgspec.structs.replace(self.state, active=(*self.state.active, *new))


def _active(execution: str, start: Start) -> ActiveRun:
    """A run that is started now; what it covers is kept only where it may be dropped."""
    start_by = start.request.start_by
    if start_by is None:
        return ActiveRun(execution, start.slot)
    return ActiveRun(execution, start.slot, start_by, start.window_start, start.slots)


class _Standing(NamedTuple):
    """All that its slots depend on when somebody looks at a schedule; times in microseconds as in the tables."""

    timing: Timing
    new_timing: Timing | None
    """The timing that it gets now."""
    policy: SlotPolicy
    cursor: int
    active: int
    line: tuple[SlotRun, ...]
    catching_up: bool
    window_from: datetime | None
    window_slots: int
    paused_at: int | None
    pauses: tuple[Pause, ...]
    last_end: datetime | None
    """None where nothing is counted from it: else it would keep schedules apart that stand alike."""
    now: int
    unbegun: tuple[SlotRun, ...]
    down_since: int | None


@lru_cache(maxsize=256)
def _decide(at: _Standing) -> tuple[Tick, int, int | None]:
    """Ask the contract; cursor and next look are given in microseconds as well.

    Of many schedules that are due at one instant most stand alike: it is decided once for them.
    """
    state = ScheduleState(
        cursor=from_micros(at.cursor),
        active=at.active,
        line=at.line,
        catching_up=at.catching_up,
        window_from=at.window_from,
        window_slots=at.window_slots,
        paused_since=optional(at.paused_at),
        pauses=at.pauses,
        last_end=at.last_end,
        unbegun=at.unbegun,
        down_since=optional(at.down_since),
    )
    if at.new_timing is None:
        tick = due(at.timing, at.policy, state, from_micros(at.now))
    else:
        tick = edit(at.timing, at.new_timing, at.policy, state, from_micros(at.now))
    return tick, instant(tick.cursor), None if tick.look_again is None else instant(tick.look_again)


def advance(
    row: ScheduleRow,
    ended: Ended,
    previous: Any = None,
    *,
    begun: Begun = MappingProxyType({}),
    new: ScheduleDefinition | None = None,
    down_for: int = 0,
    max_payload: int,
) -> Advance:
    """Look at a schedule at `row.now`.

    `previous` is the result of its last run; `begun` says of runs that are past their start deadline whether they have
    begun, and else they are dropped; `new` is a definition that it gets now; `down_for` are the microseconds for which
    the engine did not answer whoever looks.
    """
    definition = ScheduleDefinition.from_bytes(row.definition, row.id)
    state, unbegun = _drop_unbegun(read_state(row.state), begun)
    live: tuple[ActiveRun, ...] = ()
    if state.active:
        state, live = _note_ends(state, ended)
    if row.paused_at is None and new is None and _has_failed_too_often(definition, state):
        note = f"{PAUSED_ITSELF}: {state.failures} runs failed one after the other"
        state = msgspec.structs.replace(state, active=live)
        dropped = tuple(Skipped(SkipReason.DEADLINE, run.slot, run.slot, 1) for run in unbegun)
        return Advance(row.id, row.cursor, None, state, (), dropped, None, (), None, True, note, dropped)
    current, version = (definition, row.version) if new is None else (new, row.version + 1)
    tick, cursor, look_again = _decide(_standing_of(row, definition, new, state, len(live), unbegun, down_for))
    skipped, last_skipped = _join_ranges(tick, state.skipped, definition.timing)
    active = tuple([run.execution for run in live])
    stopped = active if tick.stop is not None else ()
    due_at = None
    if row.paused_at is None:
        due_at = _next_look(tick, look_again, current, live, row.now)
    return Advance(
        row.id,
        cursor,
        due_at,
        StoredState(
            active=live,
            line=tick.line,
            catching_up=tick.catching_up,
            window_from=tick.window_from,
            window_slots=tick.window_slots,
            pauses=tick.pauses,
            last_end=state.last_end,
            completed=state.completed,
            failures=state.failures,
            skipped=last_skipped if new is None else None,
            stopping=stopped or tuple([one for one in state.stopping if one in active]),
        ),
        tuple([_start(row.id, current, version, run, previous, max_payload) for run in tick.start]),
        skipped,
        tick.stop,
        stopped,
        tick.ahead,
        skipped_now=tick.skipped,
    )


def advance_all(
    rows: Sequence[ScheduleRow],
    ended: Ended,
    previous: Mapping[str, Any],
    begun: Begun,
    *,
    down_for: int,
    max_payload: int,
) -> list[Advance]:
    """Look at many schedules: see `advance`; `previous` is by their ids.

    Those that stand alike are looked at once, since only the ids of their runs differ.
    """
    advances: list[Advance] = []
    looked: dict[tuple[object, ...], Advance] = {}
    for row in rows:
        alike = (row.definition, row.state, row.cursor, row.version, row.paused_at, row.now)
        found = looked.get(alike)
        if found is not None:
            advances.append(_advance_alike(row.id, found))
            continue
        told = previous.get(row.id)
        found = advance(row, ended, told, begun=begun, down_for=down_for, max_payload=max_payload)
        advances.append(found)
        definition = ScheduleDefinition.from_bytes(row.definition, row.id)
        if definition.run_parameter is None and not definition.timing.has_jitter:
            looked[alike] = found
    return advances


def _advance_alike(id: str, found: Advance) -> Advance:
    """What a look at a schedule comes to that stands as another one does."""
    starts = []
    for start in found.starts:
        old = start.request
        request = StartRequest(
            new_id(),
            stored_slot_run_id(id, start.slot),
            old.payload,
            old.fingerprint,
            old.options,
            old.concurrency_key,
            start_by=old.start_by,
        )
        starts.append(start._replace(request=request, schedule=id))
    return found._replace(id=id, starts=tuple(starts))


def _standing_of(
    row: ScheduleRow,
    definition: ScheduleDefinition,
    new: ScheduleDefinition | None,
    state: StoredState,
    active: int,
    unbegun: tuple[SlotRun, ...],
    down_for: int,
) -> _Standing:
    timing, new_timing = definition.timing, None if new is None else new.timing
    counts_from_end = timing.after == "finish" or (new_timing is not None and new_timing.after == "finish")
    return _Standing(
        timing,
        new_timing,
        _policy_of(definition if new is None else new),
        row.cursor,
        active,
        state.line,
        state.catching_up,
        state.window_from,
        state.window_slots,
        row.paused_at,
        state.pauses,
        state.last_end if counts_from_end else None,
        row.now,
        unbegun,
        row.now - down_for if down_for else None,
    )


def _policy_of(definition: ScheduleDefinition) -> SlotPolicy:
    """Its policy. A task cannot be terminated: the next run waits until the one that is cancelled has ended."""
    policy = definition.policy
    if policy.overlap is Overlap.TERMINATE_OTHER and definition.options.kind == "task":
        return replace(policy, overlap=Overlap.CANCEL_OTHER)
    return policy


def overdue_runs(row: ScheduleRow) -> list[ActiveRun]:
    """Its runs that should have begun by now, as far as nobody has seen that they have."""
    active = read_state(row.state).active
    return [run for run in active if run.start_by is not None and row.now >= instant(run.start_by)]


def _drop_unbegun(state: StoredState, begun: Begun) -> tuple[StoredState, tuple[SlotRun, ...]]:
    """The state without the runs that were dropped, which are returned; of those that have begun nobody asks again."""
    if not begun:
        return state, ()
    active, unbegun = [], []
    for run in state.active:
        has_begun = begun.get(run.execution)
        if has_begun is False:
            unbegun.append(SlotRun(run.slot, run.window_start or run.slot, run.slot, run.slots))
        else:
            active.append(run if has_begun is None else ActiveRun(run.execution, run.slot))
    return msgspec.structs.replace(state, active=tuple(active)), tuple(unbegun)


def _note_ends(state: StoredState, ended: Ended) -> tuple[StoredState, tuple[ActiveRun, ...]]:
    """Which runs are still active, and what came of the others."""
    live: list[ActiveRun] = []
    failures, last_end, completed = state.failures, state.last_end, state.completed
    for run in state.active:
        status, at = ended.get(run.execution, (Status.CANCELLED, None))
        if status.live:
            live.append(run)
            continue
        if status is Status.COMPLETED:
            failures, completed = 0, run.execution
        elif status is not Status.CANCELLED:
            failures += 1
        if at is not None:
            last_end = at if last_end is None else max(last_end, at)
    noted = msgspec.structs.replace(state, failures=failures, last_end=last_end, completed=completed)
    return noted, tuple(live)


def last_completed(row: ScheduleRow, ended: Ended) -> str | None:
    """The newest run that completed, for a function that wants its Run; None: nobody wants to know, or none has."""
    if ScheduleDefinition.from_bytes(row.definition, row.id).run_parameter is None:
        return None
    return _note_ends(read_state(row.state), ended)[0].completed


def _has_failed_too_often(definition: ScheduleDefinition, state: StoredState) -> bool:
    most = definition.pause_after_failures
    return most is not None and state.failures >= most


def _next_look(
    tick: Tick, slot: int | None, definition: ScheduleDefinition, live: tuple[ActiveRun, ...], now: int
) -> int | None:
    """When to look again: at the next slot, when a run must have begun, and soon if something waits for one to end."""
    if not live and not tick.start:
        return slot
    looks = [] if slot is None else [slot]
    if tick.line or definition.timing.after == "finish":
        looks.append(now + LOOK_SOON)
    elif definition.pause_after_failures is not None:
        looks.append(now + LOOK_EVERY)
    looks += [max(instant(run.start_by), now + LOOK_EVERY) for run in live if run.start_by is not None]
    wait = definition.policy.longest_wait
    if wait is not None:
        looks += [instant(run.since + wait) for run in tick.start]
    return min(looks, default=None)


def _join_ranges(
    tick: Tick, last: SkippedRange | None, timing: Timing
) -> tuple[tuple[Skipped, ...], SkippedRange | None]:
    """Slots that are skipped one by one, for the same reason and without another slot between them, are one range."""
    if not tick.skipped:
        return (), None if tick.start else last
    joined: list[Skipped] = []
    for one in tick.skipped:
        if last is not None and one.into is None and _goes_on(last, one, timing):
            one = Skipped(one.reason, last.first, one.last, last.count + one.count)
            if joined and joined[-1].into is None and joined[-1].first == one.first:
                joined.pop()
        joined.append(one)
        last = None if one.into is not None else SkippedRange(one.reason, one.first, one.count, one.last)
    return tuple(joined), None if tick.start else last


def _goes_on(last: SkippedRange, one: Skipped, timing: Timing) -> bool:
    """Whether skipped slots follow those that were skipped before them: one that runs or waits may lie between."""
    if last.reason != one.reason:
        return False
    if one.reason in _NO_SLOTS or timing.after == "finish":
        return last.first < one.first
    return last.last is not None and timing.next_slot(last.last) == one.first


def _start(
    id: str, definition: ScheduleDefinition, version: int, run: SlotRun, previous: Any, max_payload: int
) -> Start:
    why = Why.COMPRESS if run.slots > 1 else Why.CATCHUP if run.caught_up else Why.SLOT
    key = stored_slot_run_id(id, run.slot)
    return make_start(
        id,
        definition,
        version,
        key,
        run.slot,
        run.window_start,
        run.slots,
        why,
        previous,
        start_by=None if definition.policy.longest_wait is None else run.since + definition.policy.longest_wait,
        max_payload=max_payload,
    )


def make_start(
    id: str,
    definition: ScheduleDefinition,
    version: int,
    key: str,
    slot: datetime,
    window_start: datetime | None,
    slots: int,
    why: Why,
    previous: Any,
    *,
    max_payload: int,
    generation: int = 0,
    start_by: datetime | None = None,
) -> Start:
    """The start of a run: the arguments of the definition and, if its function wants it, the Run."""
    payload = definition.payload
    if definition.run_parameter is not None:
        window = RunWindow(window_start, slot, slots)
        timing = definition.timing
        following = () if timing.after == "finish" else tuple(islice(timing.slots(slot), NEXT_SLOTS))
        arguments = msgspec.json.decode(payload)
        for known in (previous, None):
            told = Run(id, key, slot, window, why, version, known, following, generation)
            try:
                payload = encode({**arguments, definition.run_parameter: told}, "arguments", limit=max_payload)
            except PayloadTooLarge:
                if known is None:
                    raise
            else:
                break
    options = definition.options
    print_ = fingerprint(options.name, payload)
    request = StartRequest(new_id(), key, payload, print_, options, definition.concurrency_key, start_by=start_by)
    return Start(request, id, slot, why, version, window_start, slots, generation)


def make_manual_start(row: ScheduleRow, request_key: str, previous: Any, *, max_payload: int) -> Start:
    """The start of a run that somebody triggers by hand. It is no slot, and its window is the instant."""
    definition = ScheduleDefinition.from_bytes(row.definition, row.id)
    at = from_micros(row.now // 1_000_000 * 1_000_000)
    key = manual_run_id(row.id, request_key)
    return make_start(row.id, definition, row.version, key, at, None, 0, Why.MANUAL, previous, max_payload=max_payload)


def end_pause(row: ScheduleRow) -> StoredState:
    """The state of a paused schedule that is resumed now: what it has missed is decided at the next look.

    Failures before count no more.
    """
    state = read_state(row.state)
    if row.paused_at is None:
        return state
    pause = Pause(from_micros(row.paused_at), from_micros(row.now))
    return msgspec.structs.replace(state, pauses=(*state.pauses, pause), failures=0)
