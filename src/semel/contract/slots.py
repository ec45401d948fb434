"""Which slots of a schedule run now, which wait, and which do not run and why: one pure function, `due`.

                 cursor                        now
    ──────┼────────●────────┼────────┼────────┼─┤──────┼──▶
       covered for ever     └── open: late, paused or on time

The cursor is the newest slot that has been decided; a slot at or before it never fires again. Whoever stores the new
cursor together with the runs that `due` returns has each slot at most once, whatever crashes in between. A *line* holds
slots that were decided to run and wait for the active run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from semel.contract.slot_policy import LEAST_GRACE, MOST_GRACE, Misfire, Overlap, Skipped, SkipReason, SlotPolicy, Stop
from semel.contract.slot_queue import SlotQueue
from semel.contract.timing import MAX_TIMES, Around, SlotSpan, Timing, to_utc

MAX_STARTS: Final = 1000
"""The most runs that start in one tick with overlap="allow_all"; the next tick, at once, goes on."""

_SECOND: Final = timedelta(seconds=1)
_NO_SLOTS: Final = Around(None, None, None)
_MISSED: Final = (SkipReason.LATE, SkipReason.ENGINE_DOWN, SkipReason.PAUSED)


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause that is over, [start, end)."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class SlotRun:
    """A slot that runs, now or when it is its turn.

    Its window is (window_start, slot] and has `slots` slots. The window of a run begins where the one before ended, so
    that they tile. `since` is when it was decided.
    """

    slot: datetime
    window_start: datetime
    since: datetime
    slots: int = 1
    caught_up: bool = False


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """What is known of a schedule besides its definition.

    `active` counts its runs that have not ended. `unbegun` are runs that were started and have been dropped since,
    because nobody began them in time. `pauses` are those since the last tick that was not paused. `last_end` is the end
    of the last run, for `after="finish"`. `down_since`: whoever looks could not before, because the engine did not
    answer since then. The other fields are what the last `Tick` returned.
    """

    cursor: datetime
    active: int = 0
    line: tuple[SlotRun, ...] = ()
    catching_up: bool = False
    window_from: datetime | None = None
    window_slots: int = 0
    paused_since: datetime | None = None
    pauses: tuple[Pause, ...] = ()
    last_end: datetime | None = None
    unbegun: tuple[SlotRun, ...] = ()
    down_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """What to do now: store it all in one transaction.

    `start` has the runs to start, in order, after `stop` was done to the active ones. `window_from` is where the next
    window begins, if not at the cursor; `window_slots` of the slots since then did not run. `look_again` is when the
    next slot fires (None: not before a run ends, the schedule is resumed or edited, or never). `ahead`: the cursor is
    so far in the future, because a clock ran ahead and came back; nothing fires, and it should be reported.
    """

    cursor: datetime
    start: tuple[SlotRun, ...] = ()
    line: tuple[SlotRun, ...] = ()
    catching_up: bool = False
    window_from: datetime | None = None
    window_slots: int = 0
    pauses: tuple[Pause, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    stop: Stop | None = None
    look_again: datetime | None = None
    ahead: timedelta | None = None


def due(timing: Timing, policy: SlotPolicy, state: ScheduleState, now: datetime) -> Tick:
    """Decide about every slot in (cursor, now] that fires by now.

    The same definition, state and time give the same answer. While a schedule is paused nothing is decided: the first
    tick after it is resumed decides about the slots of the pause. To change a schedule's timing use `edit`.
    """
    return _decide(timing, policy, state, to_utc(now, "now"))


def _decide(timing: Timing, policy: SlotPolicy, state: ScheduleState, now: datetime, hurry: bool = False) -> Tick:
    """The answer of `due`; in a `hurry` a slot does not wait for its jitter."""
    if state.cursor > now:
        return Tick(
            cursor=state.cursor,
            line=state.line,
            catching_up=state.catching_up,
            window_from=state.window_from,
            window_slots=state.window_slots,
            pauses=state.pauses,
            look_again=state.cursor,
            ahead=state.cursor - now,
        )
    decision = _Decision(timing, policy, state, now)
    decision.drop_overdue()
    if state.paused_since is None:
        decision.decide_open_slots(hurry)
        decision.start_waiting()
    return decision.to_tick()


def edit(old: Timing, new: Timing, policy: SlotPolicy, state: ScheduleState, now: datetime) -> Tick:
    """Decide what the old timing has open, and move the cursor to where the new one begins.

    A slot of the old timing that has come and only waits for its jitter is decided now, so that it is not lost. Slots
    of the new timing that have passed are taken as covered, so that none is run after the fact; the next window begins
    where the last one ended nevertheless. While the schedule is paused, slots since the pause began stay open, and what
    the old timing had left open before it waits until it is over; with the same timing nothing is moved at all.
    """
    now = to_utc(now, "now")
    if new == old and state.paused_since is not None:
        return due(new, policy, state, now)
    tick = _decide(old, policy, state, now, hurry=True)
    if tick.ahead is not None:
        return tick
    if state.paused_since is not None:
        tick = _decide_before_pause(old, policy, state, state.paused_since)
    passed = None if new.after == "finish" else new.newest_slot(state.paused_since or now)
    if passed is not None and state.paused_since is not None and _waits_for_jitter(old, passed, state.paused_since):
        passed = new.previous_slot(passed)
    if passed is not None and passed > tick.cursor:
        tick = replace(tick, cursor=passed, window_from=tick.window_from or tick.cursor)
    if state.paused_since is not None:
        return tick
    after = replace(state, cursor=tick.cursor, active=state.active + len(tick.start), line=tick.line)
    return replace(tick, look_again=_next_look(new, policy, after))


def _decide_before_pause(old: Timing, policy: SlotPolicy, state: ScheduleState, paused_since: datetime) -> Tick:
    """What a timing had open when a pause began: it is put into the line, or skipped where missed slots are."""
    tick = _decide(old, policy, replace(state, paused_since=None, pauses=()), paused_since)
    waiting, skipped = (*tick.start, *tick.line), tick.skipped
    if policy.misfire is Misfire.SKIP:
        fresh = [run for run in waiting if run not in state.line]
        skipped += tuple(Skipped(SkipReason.PAUSED, run.slot, run.slot, 1) for run in fresh)
        waiting = state.line
    return replace(tick, start=(), line=waiting, skipped=skipped, stop=None, pauses=state.pauses, look_again=None)


def _waits_for_jitter(timing: Timing, slot: datetime, at: datetime) -> bool:
    """Whether this is a slot that has come and fires only after an instant."""
    return timing.after == "start" and timing.newest_slot(slot) == slot and timing.fires_at(slot) >= at


def _open_timing(timing: Timing, state: ScheduleState) -> tuple[Timing | None, datetime]:
    """The timing of the open slots, and the instant after which they lie. None: they depend on the active run."""
    if timing.after == "start":
        return timing, state.cursor
    if state.active or state.line:
        return None, state.cursor
    if state.last_end is None and timing.start_at is not None:
        return replace(timing, after="start"), state.cursor
    anchored = timing.anchor_at(state.last_end or state.cursor)
    return anchored, max(state.cursor, anchored.anchor or state.cursor)


def _next_look(timing: Timing, policy: SlotPolicy, state: ScheduleState) -> datetime | None:
    """When the next slot after the cursor fires, or the first one in the line has waited too long."""
    looks = []
    opened, after = _open_timing(timing, state)
    following = None if opened is None else opened.around(after).following
    if opened is not None and following is not None:
        looks.append(opened.fires_at(following))
    if policy.longest_wait is not None and state.line:
        looks.append(min(run.since for run in state.line) + policy.longest_wait)
    return min(looks, default=None)


class _Decision:
    """One tick in the making."""

    def __init__(self, timing: Timing, policy: SlotPolicy, state: ScheduleState, now: datetime) -> None:
        self.given_timing = timing
        self.policy = policy
        self.state = state
        self.now = now
        self.cursor = state.cursor
        self.start: list[SlotRun] = []
        self.line = list(state.line)
        self.skipped: list[Skipped] = []
        self.dropped: list[tuple[datetime, datetime, int]] = []
        """Windows of slots that do not run, though they were on time: their beginnings, their ends, their slots."""
        self.stop: Stop | None = None
        self.truncated = False
        opened, self.after = _open_timing(timing, state)
        self.timing = timing if opened is None else opened
        self.has_slots = opened is not None

    def drop_overdue(self) -> None:
        """Drop what has waited for longer than the start deadline, in the line or for somebody to begin it."""
        self._skip_runs(list(self.state.unbegun), SkipReason.DEADLINE)
        wait = self.policy.longest_wait
        if wait is not None and self.line:
            overdue = [run for run in self.line if self.now - run.since > wait]
            self.line = [run for run in self.line if self.now - run.since <= wait]
            self._skip_runs(overdue, SkipReason.DEADLINE)

    def decide_open_slots(self, hurry: bool) -> None:
        """Decide about every slot after the cursor that fires by now, or in a `hurry` that has come by now."""
        before, newest, _ = self.timing.around(self.now) if self.has_slots else _NO_SLOTS
        if newest is not None and not hurry and self.timing.has_jitter and self.timing.fires_at(newest) > self.now:
            newest, before = before, None if before is None else self.timing.previous_slot(before)
        if newest is None or newest <= self.after:
            return
        self.cursor = newest
        alone = before is None or before <= self.after
        on_time = self._is_on_time(newest)
        paused = bool(self.state.pauses) and self._is_paused(newest)
        misfire = self.policy.misfire
        if misfire is Misfire.CATCHUP and self.given_timing.after == "finish":
            misfire = Misfire.COMPRESS  # there is one slot after each run, so there is nothing to catch up one by one
        if misfire is Misfire.COMPRESS and self.given_timing.after == "finish":
            before = None  # nor is there anything to cover
        if alone and on_time and not paused:
            self._admit_on_time([(self.after, newest)], newest)
        elif misfire is Misfire.SKIP:
            last_late = newest if not on_time else before
            self._admit_on_time(self._skip_late_and_paused(newest, last_late))
        elif misfire is Misfire.CATCHUP:
            self._catch_up(newest, on_time and not paused)
        else:
            self._compress(newest, before)

    def start_waiting(self) -> None:
        """Start the first of the line if nothing is active, or all of it if runs may overlap."""
        if self.line and not self.start and (self.state.active == 0 or self.stop is Stop.TERMINATE):
            self.start.append(self.line.pop(0))
        if self.policy.overlap is Overlap.ALLOW_ALL and not self._is_catching_up():
            self.start.extend(self.line)
            self.line = []

    def to_tick(self) -> Tick:
        """The whole of what was decided."""
        state, paused = self.state, self.state.paused_since is not None
        moved = self.cursor > state.cursor
        if moved:
            self._note_what_was_no_slot()
        window_from, window_slots = self._pass_on_windows()
        after = replace(state, cursor=self.cursor, line=tuple(self.line), active=state.active + len(self.start))
        look_again = self.now if self.truncated else _next_look(self.given_timing, self.policy, after)
        if paused:
            wait = self.policy.longest_wait
            look_again = min(run.since for run in self.line) + wait if wait is not None and self.line else None
        return Tick(
            cursor=self.cursor,
            start=tuple(self.start),
            line=tuple(self.line),
            catching_up=self._is_catching_up(),
            window_from=window_from,
            window_slots=window_slots,
            pauses=state.pauses if paused or self.truncated else (),
            skipped=tuple(self.skipped),
            stop=self.stop,
            look_again=look_again,
        )

    def _pass_on_windows(self) -> tuple[datetime | None, int]:
        """Where the next window begins, if not at the cursor, and how many slots are in it already.

        Where missed slots are compressed, nothing falls between two windows: the window of a slot that does not run
        becomes part of that of the next run.
        """
        moved = self.cursor > self.state.cursor
        begin, count = (None, 0) if moved else (self.state.window_from, self.state.window_slots)
        if self.policy.misfire is not Misfire.COMPRESS:
            return begin, count
        for start, end, slots in sorted(self.dropped, key=lambda window: window[1], reverse=True):
            runs = self.start if any(run.window_start == end for run in self.start) else self.line
            at = next((i for i, run in enumerate(runs) if run.window_start == end), None)
            if at is not None:
                runs[at] = replace(runs[at], window_start=start, slots=runs[at].slots + slots)
            elif end == (self.cursor if begin is None else begin):
                begin, count = start, count + slots
        return begin, count

    def _is_catching_up(self) -> bool:
        if any(run.caught_up for run in self.line) or any(run.caught_up for run in self.start):
            return True
        return self.state.catching_up and self.state.active > 0 and self.stop is None

    def _last_fired(self, before: datetime) -> datetime | None:
        """The newest slot that fires before an instant."""
        slot = self.timing.previous_slot(before)
        if slot is not None and self.timing.has_jitter and self.timing.fires_at(slot) >= before:
            return self.timing.previous_slot(slot)
        return slot

    def _is_on_time(self, newest: datetime) -> bool:
        if self.timing.one_shot:
            return True
        grace = self.policy.given_grace
        if grace is None:
            following = self.timing.around(newest).following
            half = MOST_GRACE if following is None else (following - newest) / 2
            grace = max(LEAST_GRACE, min(half, MOST_GRACE))
        return self.now - self.timing.fires_at(newest) <= grace

    def _is_paused(self, slot: datetime) -> bool:
        fires = self.timing.fires_at(slot)
        return any(pause.start <= fires < pause.end for pause in self.state.pauses)

    def _skip_late_and_paused(self, newest: datetime, last_late: datetime | None) -> list[tuple[datetime, datetime]]:
        """Note the slots that are late or inside a pause, and return the others as spans (after, until]."""
        after, grace = self.after, self.policy.given_grace
        if self.timing.one_shot:
            last_late = after
        elif grace is not None:
            last_late = self._last_fired(self.now - grace)
        late_until = min(max(last_late or after, after), newest)
        spans: list[tuple[datetime, datetime]] = []
        position = after
        edges = [
            (self._last_fired(pause.start) or after, self._last_fired(pause.end) or after)
            for pause in sorted(self.state.pauses, key=lambda pause: pause.start)
        ]
        for begin, end in [*edges, (newest, newest)]:
            begin, end = (min(max(edge, position), newest) for edge in (begin, end))
            if begin == end and begin != newest:
                continue  # a pause without a slot
            self._skip_late(position, min(begin, late_until))
            if max(position, late_until) < begin:
                spans.append((max(position, late_until), begin))
            self._skip(SkipReason.PAUSED, self.timing.span(begin, end))
            position = end
        return spans

    def _skip_late(self, after: datetime, until: datetime) -> None:
        """Note the slots in (after, until] as late. Single times among them run nevertheless, one after the other."""
        for slot in self._late_single_times(after, until):
            self._skip_missed(after, slot - _SECOND)
            self.line.append(self._run(slot, caught_up=True))
            after = slot
        self._skip_missed(after, until)

    def _skip_missed(self, after: datetime, until: datetime) -> None:
        """Note the slots in (after, until] as late; those that fired since the engine was down, with that reason."""
        down_since = self.state.down_since
        last_before = until if down_since is None else self._last_fired(down_since) or after
        edge = min(max(last_before, after), until)
        self._skip(SkipReason.LATE, self.timing.span(after, edge))
        self._skip(SkipReason.ENGINE_DOWN, self.timing.span(edge, until))

    def _late_single_times(self, after: datetime, until: datetime) -> list[datetime]:
        return self.timing.single_times(after, until) if self.timing.others and after < until else []

    def _admit_on_time(self, spans: list[tuple[datetime, datetime]], only: datetime | None = None) -> None:
        """Start slots that are on time, put them into the line or skip them, as `overlap` says.

        The slots are those of `spans`, or `only` this one.
        """
        queue = SlotQueue(self.timing, spans, only)
        free = self.state.active == 0 and not self.line
        room = max(0, self.policy.max_buffer - len(self.line))
        if self.timing.one_shot and only is None:
            slots = queue.take(MAX_TIMES)
            if len(slots) == 1:
                self._admit_on_time([], slots[0])
            else:
                self.line += [self._run(slot, caught_up=True) for slot in slots]
        elif self._is_catching_up():
            room = max(0, self.policy.max_buffer + self.policy.max_catchup - len(self.line))
            self.line += map(self._run, queue.take(room))
            self._skip_spans(SkipReason.BUFFER_FULL, queue.spans)
        elif self.policy.overlap in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER):
            self._replace_active(queue)
        elif self.policy.overlap is Overlap.ALLOW_ALL:
            self.start += self.line
            self.line = []
            self.start += map(self._run, queue.take(MAX_STARTS))
            self._leave_for_the_next_tick(queue)
        else:
            self.start += map(self._run, queue.take(1 if free else 0))
            if self.policy.overlap is Overlap.BUFFER_ONE:
                room = 0 if self.line else 1
            elif self.policy.overlap is Overlap.SKIP:
                room = 0
            self.line += map(self._run, queue.take(room))
            full = SkipReason.BUFFER_FULL if self.policy.overlap is Overlap.BUFFER_ALL else SkipReason.OVERLAP
            self._skip_spans(full, queue.spans)

    def _replace_active(self, queue: SlotQueue) -> None:
        """Let the newest slot run instead of what is active or waits."""
        newest = queue.take_newest()
        if newest is None:
            return
        self._skip_spans(SkipReason.OVERLAP, queue.spans)
        self._skip_runs(self.line, SkipReason.OVERLAP)
        self.line = [self._run(newest)]
        if self.state.active:
            self.stop = Stop.CANCEL if self.policy.overlap is Overlap.CANCEL_OTHER else Stop.TERMINATE

    def _leave_for_the_next_tick(self, queue: SlotQueue) -> None:
        """Move the cursor only so far as slots have been started, if there are more."""
        if self.start and queue.spans:
            self.cursor = self.start[-1].slot
            self.skipped = [one for one in self.skipped if one.first <= self.cursor]
            self.truncated = True

    def _catch_up(self, newest: datetime, on_time: bool) -> None:
        """Put the newest slots into the line, oldest first, and skip older ones."""
        most = MAX_TIMES if self.timing.one_shot else self.policy.max_catchup + on_time
        room = self.policy.max_buffer + self.policy.max_catchup + 1 - len(self.line)
        limit = most if self.timing.one_shot else max(0, min(most, room))
        slots = self.timing.newest(limit, self.after, newest) if limit else []
        reason = SkipReason.CATCHUP_LIMIT if limit == most else SkipReason.BUFFER_FULL
        older, after = slots[0] - _SECOND if slots else newest, self.after
        for slot in self._late_single_times(after, older):
            self._skip(reason, self.timing.span(after, slot - _SECOND))
            self.line.append(self._run(slot, caught_up=True))
            after = slot
        self._skip(reason, self.timing.span(after, older))
        self.line += [self._run(slot, caught_up=not (on_time and slot == newest)) for slot in slots]

    def _compress(self, newest: datetime, before: datetime | None) -> None:
        """Put one run into the line that covers every open slot, and a compressed run that still waits at its end."""
        covered = self.timing.span(self.after, before) if before is not None and before > self.after else None
        begin, count = self._first_window_start(newest), 1 + (covered.count if covered else 0) + self.state.window_slots
        if self.line and self.line[-1].caught_up and self.line[-1].slot == begin:
            last = self.line.pop()
            begin, count = last.window_start, last.slots + count
            self.skipped.append(Skipped(SkipReason.COMPRESSED, last.slot, last.slot, 1, newest))
        elif len(self.line) > self.policy.max_buffer:
            self._skip(SkipReason.BUFFER_FULL, self.timing.span(self.after, newest))
            self.dropped.append((begin, newest, count))
            return
        self._skip(SkipReason.COMPRESSED, covered, newest)
        self.line.append(SlotRun(slot=newest, window_start=begin, since=self.now, slots=count, caught_up=True))

    def _run(self, slot: datetime, caught_up: bool = False) -> SlotRun:
        before = self.timing.around(slot).before
        if before is not None and before > self.after:
            return SlotRun(slot=slot, window_start=before, since=self.now, caught_up=caught_up)
        begin, slots = self._first_window_start(slot), 1 + self.state.window_slots
        return SlotRun(slot=slot, window_start=begin, since=self.now, slots=slots, caught_up=caught_up)

    def _first_window_start(self, slot: datetime) -> datetime:
        """Where the window of the first slot after the cursor begins."""
        if self.state.window_from is not None:
            return self.state.window_from
        early = self.timing.early_span(self.state.cursor, slot)
        return self.state.cursor if early is None else early.last

    def _skip(self, reason: SkipReason, span: SlotSpan | None, into: datetime | None = None) -> None:
        if span is not None and self.given_timing.after == "finish" and reason in _MISSED:
            # There is one open slot after each run: those that would have followed it have never been.
            if not any(one.reason in _MISSED for one in self.skipped):
                self.skipped.append(Skipped(reason, span.first, span.first, 1, into))
        elif span is not None:
            self.skipped.append(Skipped(reason, span.first, span.last, span.count, into))

    def _skip_spans(self, reason: SkipReason, spans: list[tuple[datetime, datetime]]) -> None:
        for after, until in spans:
            span = self.timing.span(after, until)
            if span is not None:
                first = self._run(span.first)
                self._skip(reason, span)
                self.dropped.append((first.window_start, span.last, first.slots + span.count - 1))

    def _skip_runs(self, runs: list[SlotRun], reason: SkipReason) -> None:
        self.skipped += [Skipped(reason, run.slot, run.slot, 1) for run in runs]
        self.dropped += [(run.window_start, run.slot, run.slots) for run in runs]

    def _note_what_was_no_slot(self) -> None:
        """Note what would have been slots, were it not for `start_at` and `exclude`."""
        after = self.state.cursor
        self._skip(SkipReason.BEFORE_START, self.timing.early_span(after, self.cursor))
        self._skip(SkipReason.EXCLUDED, self.timing.excluded_span(after, self.cursor))
