"""Backfills: slots of the past that somebody asks for. What became of each slot, and which of them run.

| on record of the slot   | it is   | rerun="missing" | "failed" | "all"  |
|-------------------------|---------|-----------------|----------|--------|
| no run, no reason       | missing | runs            | runs     | runs   |
| a reason not to run     | skipped | runs            | runs     | runs   |
| a run that failed       | failed  | –               | runs     | runs   |
| a run that completed    | done    | –               | –        | runs   |
| a run under way         | running | –               | –        | –      |
| nothing any more        | unknown | forced          | forced   | forced |
| a run, not how it ended | unknown | –               | forced   | forced |

A slot that was compressed into the run of a later one is what that run is. Where a slot has a run and is in a range of
skipped slots, the run counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from semel.contract.lifecycle import Status
from semel.contract.slot_policy import SkipReason
from semel.contract.slots import SlotRun
from semel.contract.timing import Timing, to_utc
from semel.errors import InvalidValue

MOST_SLOTS: Final = 100_000
"""A backfill of more slots is refused: make several, one after the other."""
MOST_ACTIVE: Final = 100
"""The highest `max_active`: each active run of a backfill is stored with it."""
_SECOND: Final = timedelta(seconds=1)
_NO_SLOTS: Final = (SkipReason.EXCLUDED, SkipReason.BEFORE_START)
"""Reasons of times that were no slots; ranges of them may lie across those of slots."""


class SlotFate(StrEnum):
    """What became of a slot."""

    DONE = "done"
    """Its run completed, or the run that it was compressed into."""
    FAILED = "failed"
    """Its newest run failed, timed out or was cancelled."""
    RUNNING = "running"
    """Its run is under way, or waits for its turn."""
    MISSING = "missing"
    """It never ran, and no reason is on record: it was before the schedule was created, or nobody has decided yet."""
    SKIPPED = "skipped"
    """It did not run, and the reason is on record."""
    UNKNOWN = "unknown"
    """What is on record of it, or how its run ended, is past its retention."""


class Rerun(StrEnum):
    """Which slots a backfill runs."""

    MISSING = "missing"
    """Those that never ran."""
    FAILED = "failed"
    """Those, and those whose newest run did not complete."""
    ALL = "all"
    """All but those whose run is under way."""


class BackfillStatus(StrEnum):
    """How a backfill stands."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    """Every slot of its range was looked at, and every run that it started has ended."""
    CANCELLED = "cancelled"

    @property
    def open(self) -> bool:
        """It starts runs, or will when it is resumed."""
        return self in (BackfillStatus.RUNNING, BackfillStatus.PAUSED)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The newest run of a slot that is on record."""

    generation: int
    status: Status | None
    """None: how it ended is not kept any more."""


@dataclass(frozen=True, slots=True)
class CoveringRun:
    """A run whose window (after, slot] covers several slots."""

    after: datetime
    slot: datetime
    status: Status | None


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Slots that did not run, for one reason."""

    first: datetime
    last: datetime
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class SlotRecords:
    """What is on record of the slots in a range.

    `known_since`: of slots before it records may be gone, unless they are before `created_at`, when there was no
    schedule. Slots after `decided_until` are not decided. `waiting` is the schedule's line.
    """

    runs: Mapping[datetime, RecordedRun]
    covering: tuple[CoveringRun, ...]
    skipped: tuple[SkippedRange, ...]
    waiting: tuple[SlotRun, ...]
    created_at: datetime
    decided_until: datetime
    known_since: datetime


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    """One slot of a backfill's range."""

    slot: datetime
    fate: SlotFate
    runs: bool
    """Whether the backfill runs it."""
    generation: int = 0
    """Of the run that it would get: 0 if it never had one."""
    reason: SkipReason | None = None
    """Why it did not run, where it was skipped."""


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a backfill would do with each slot of its range, as the records stood when they were read."""

    schedule: str
    start: datetime
    end: datetime
    rerun: Rerun
    force: bool
    slots: tuple[PlannedSlot, ...]

    @property
    def counts(self) -> dict[SlotFate, int]:
        """How many slots have which fate."""
        found = dict.fromkeys(SlotFate, 0)
        for one in self.slots:
            found[one.fate] += 1
        return found

    @property
    def to_run(self) -> int:
        """How many slots would run."""
        return sum(one.runs for one in self.slots)


@dataclass(frozen=True, slots=True)
class BackfillInfo:
    """A backfill, as it stood when it was read."""

    id: str
    schedule: str
    version: int
    """The version of the schedule's definition that all its runs have."""
    start: datetime
    end: datetime
    """Slots at this time and later are not part of it."""
    rerun: Rerun
    force: bool
    max_active: int
    status: BackfillStatus
    note: str | None
    slots: int
    """How many slots its range has."""
    looked_at: int
    """So many of them were started or left as they are."""
    left: Mapping[SlotFate, int]
    """How many were left as they are, by what had become of them."""
    started: int
    completed: int
    failed: int
    """Runs that failed, timed out or were cancelled."""
    running: tuple[str, ...]
    """Keys of runs that had not ended when somebody looked last."""
    created_at: datetime
    changed_at: datetime
    finished_at: datetime | None

    @property
    def done(self) -> int:
        """How many slots need nothing any more: those left as they are, and those whose runs have ended."""
        return self.looked_at - len(self.running)


def check_range(timing: Timing, start: datetime, end: datetime, now: datetime) -> tuple[datetime, datetime]:
    """The range [start, end) of a backfill, in UTC. InvalidValue: it has no slots or too many, or is not past."""
    if timing.after == "finish":
        raise InvalidValue("slots with after='finish' depend on the end of the last run: there are none to backfill.")
    start, end = to_utc(start, "start"), to_utc(end, "end")
    if start >= end:
        raise InvalidValue(f"end={end} is not after start={start}: a backfill has the slots from start to before end.")
    if end > now:
        raise InvalidValue(f"end={end} is in the future: a backfill is about slots that have passed.")
    count = count_slots(timing, start, end)
    if not count:
        raise InvalidValue(f"there is no slot from {start} to before {end}.")
    if count > MOST_SLOTS:
        raise InvalidValue(
            f"there are {count} slots from {start} to before {end}, and a backfill has at most {MOST_SLOTS}: make "
            "several, one after the other."
        )
    return start, end


def check_max_active(limit: object) -> int:
    """How many runs of a backfill may be active at once. InvalidValue: not a number, or out of bounds."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_ACTIVE:
        raise InvalidValue(f"max_active={limit!r}: give a whole number from 1 to {MOST_ACTIVE}.")
    return limit


def check_rerun(rerun: object) -> Rerun:
    """Which slots a backfill runs. InvalidValue: none of the words."""
    try:
        return Rerun(str(rerun))
    except ValueError:
        raise InvalidValue(f"rerun={rerun!r}: use one of {', '.join(repr(one.value) for one in Rerun)}.") from None


def count_slots(timing: Timing, start: datetime, end: datetime) -> int:
    """How many slots there are in [start, end)."""
    return timing.count(before(start), before(end))


def before(at: datetime) -> datetime:
    """The last instant before a time, as far as slots go: they are whole seconds."""
    return at - _SECOND if at.microsecond == 0 else at


def take_slots(timing: Timing, cursor: datetime, end: datetime, limit: int) -> list[datetime]:
    """The first slots after a cursor and before the end, oldest first."""
    return timing.oldest(limit, cursor, before(end))


def window_start(timing: Timing, slot: datetime) -> datetime | None:
    """Where the window of a slot that runs alone begins: at the slot before, also at one before `start_at`."""
    found = timing.previous_slot(slot)
    if found is not None or timing.start_at is None:
        return found
    anchor = (timing.anchor or timing.start_at) if timing.every is not None else None
    return replace(timing, start_at=None, anchor=anchor).previous_slot(slot)


def plan_slots(slots: Iterable[datetime], records: SlotRecords, rerun: Rerun, force: bool) -> list[PlannedSlot]:
    """What became of each of these slots, which are in order, and which of them run."""
    ranges = sorted((one for one in records.skipped if one.reason not in _NO_SLOTS), key=lambda one: one.last)
    planned, at = [], 0
    for slot in slots:
        while at < len(ranges) and ranges[at].last < slot:
            at += 1
        skipped = ranges[at] if at < len(ranges) and ranges[at].first <= slot else None
        planned.append(_plan(slot, records, skipped, rerun, force))
    return planned


def _plan(slot: datetime, records: SlotRecords, skipped: SkippedRange | None, rerun: Rerun, force: bool) -> PlannedSlot:
    run = records.runs.get(slot)
    if run is not None:
        fate = _fate_of_run(run.status)
        return PlannedSlot(slot, fate, _runs_again(fate, rerun, force), run.generation + 1)
    if any(one.window_start < slot <= one.slot if one.slots > 1 else slot == one.slot for one in records.waiting):
        return PlannedSlot(slot, SlotFate.RUNNING, False)
    for one in records.covering:
        if one.after < slot <= one.slot:
            fate = _fate_of_run(one.status)
            return PlannedSlot(slot, fate, _runs_again(fate, rerun, force))
    if skipped is not None:
        return PlannedSlot(slot, SlotFate.SKIPPED, True, reason=skipped.reason)
    if records.created_at < slot <= records.decided_until and slot < records.known_since:
        return PlannedSlot(slot, SlotFate.UNKNOWN, force, 1)
    return PlannedSlot(slot, SlotFate.MISSING, True)


def _fate_of_run(status: Status | None) -> SlotFate:
    if status is None:
        return SlotFate.UNKNOWN
    if status.live:
        return SlotFate.RUNNING
    return SlotFate.DONE if status is Status.COMPLETED else SlotFate.FAILED


def _runs_again(fate: SlotFate, rerun: Rerun, force: bool) -> bool:
    """Whether a slot that has had a run gets another one."""
    match rerun:
        case Rerun.MISSING:
            return False
        case Rerun.FAILED:
            return fate is SlotFate.FAILED or (fate is SlotFate.UNKNOWN and force)
        case Rerun.ALL:
            return fate in (SlotFate.FAILED, SlotFate.DONE) or (fate is SlotFate.UNKNOWN and force)
