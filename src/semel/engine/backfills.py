"""Backfills as engines keep them: the row, what is stored with it, and what one step of a backfill comes to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from semel.codec import decoder_of
from semel.contract.backfill import (
    BackfillInfo,
    BackfillPlan,
    BackfillStatus,
    PlannedSlot,
    Rerun,
    SlotFate,
    SlotRecords,
    count_slots,
    plan_slots,
    take_slots,
    window_start,
)
from semel.contract.decision import Reuse
from semel.contract.lifecycle import Status
from semel.contract.runs import Why
from semel.contract.times import from_micros, instant, micros, optional
from semel.engine.schedules import ScheduleDefinition
from semel.engine.ticks import Start, make_start
from semel.triggers.ids import slot_run_id

CHUNK: Final = 100
"""Slots that one step of a backfill looks at, at most."""
LEAST_WAIT: Final = timedelta(milliseconds=100)
MOST_WAIT: Final = timedelta(seconds=5)
"""While runs are active somebody looks whether they have ended: after a quarter of the time that nothing has changed,
and within these bounds."""
UNDECIDED: Final = timedelta(seconds=1)
"""Until a backfill looks again that has come to slots which its schedule has yet to decide about."""


class BackfillRun(Struct, frozen=True):
    """A run of a backfill that had not ended when somebody looked last."""

    key: str
    generation: int


class StoredBackfill(Struct, frozen=True, omit_defaults=True):
    """What is known of a backfill besides its cursor; a field that is added needs a default."""

    active: tuple[BackfillRun, ...] = ()
    started: int = 0
    completed: int = 0
    failed: int = 0
    left: dict[SlotFate, int] = {}
    """How many slots were left as they are, by what had become of them."""

    def to_bytes(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode(self)


read_backfill: Final = decoder_of(StoredBackfill).decode
NEW_BACKFILL: Final = StoredBackfill().to_bytes()


class BackfillRow(NamedTuple):
    """A backfill as the tables hold it; times in microseconds."""

    id: str
    schedule: str
    version: int
    definition: bytes
    start_at: int
    end_at: int
    rerun: str
    forced: int
    max_active: int
    phase: str
    """Its BackfillStatus."""
    note: str | None
    cursor: int
    due_at: int | None
    state: bytes
    created_at: int
    changed_at: int
    finished_at: int | None
    now: int
    """When it was read."""

    def read_definition(self) -> ScheduleDefinition:
        """What its runs run: the definition that its schedule had when the backfill was created."""
        return ScheduleDefinition.from_bytes(self.definition, self.schedule)


class BackfillRequest(NamedTuple):
    """A backfill that somebody asks for. Sent again under its id it is the same one."""

    id: str
    schedule: str
    start: datetime
    end: datetime
    rerun: Rerun
    force: bool
    max_active: int

    def is_same(self, row: BackfillRow) -> bool:
        """Was this backfill asked for with the same words?"""
        asked = (self.schedule, instant(self.start), instant(self.end), self.rerun, int(self.force), self.max_active)
        return asked == (row.schedule, row.start_at, row.end_at, row.rerun, row.forced, row.max_active)


class BackfillStep(NamedTuple):
    """What one look at a backfill comes to; all of it is stored in one transaction."""

    cursor: int
    status: BackfillStatus
    due_at: int | None
    state: StoredBackfill
    starts: tuple[tuple[Start, int], ...]
    """Runs to start, each with its generation."""
    changed: bool
    """Something was started, left or has ended."""


def note_ends(state: StoredBackfill, ended: Sequence[Status | None]) -> StoredBackfill:
    """The state after a look at its active runs, in their order. None: how it ended is not known any more."""
    live, completed, failed = [], state.completed, state.failed
    for run, status in zip(state.active, ended, strict=True):
        if status is not None and status.live:
            live.append(run)
        elif status is Status.COMPLETED:
            completed += 1
        else:
            failed += 1
    return replace(state, active=tuple(live), completed=completed, failed=failed)


def room_of(row: BackfillRow, state: StoredBackfill) -> int:
    """How many runs it may start now."""
    return row.max_active - len(state.active) if row.phase == BackfillStatus.RUNNING else 0


def next_slots(row: BackfillRow, decided_until: datetime | None) -> list[datetime]:
    """The slots that it looks at next, oldest first, but none after `decided_until`, if one is given."""
    slots = take_slots(row.read_definition().timing, from_micros(row.cursor), from_micros(row.end_at), CHUNK)
    return slots if decided_until is None else [slot for slot in slots if slot <= decided_until]


def step_backfill(
    row: BackfillRow,
    state: StoredBackfill,
    slots: Sequence[datetime],
    records: SlotRecords | None,
    *,
    whole: bool,
    max_payload: int,
) -> BackfillStep:
    """Go on with a backfill as far as there is room. `whole`: there are no slots in its range after these."""
    before = read_backfill(row.state)
    room, cursor, starts, left = room_of(row, state), row.cursor, [], dict(state.left)
    planned = [] if records is None else plan_slots(slots, records, Rerun(row.rerun), bool(row.forced))
    looked = 0
    for one in planned:
        if one.runs:
            if not room:
                break
            room -= 1
            starts.append((_make_start(row, one, max_payload), one.generation))
        else:
            left[one.fate] = left.get(one.fate, 0) + 1
        cursor, looked = instant(one.slot), looked + 1
    active = (*state.active, *(BackfillRun(start.request.key or "", generation) for start, generation in starts))
    state = replace(state, active=active, started=state.started + len(starts), left=left)
    changed = bool(looked) or state.active != before.active
    status = BackfillStatus(row.phase)
    if status is BackfillStatus.RUNNING and whole and looked == len(planned) and not active:
        status = BackfillStatus.COMPLETED
    goes_on = status is BackfillStatus.RUNNING and room and looked == len(planned) and not whole
    due_at = None
    if goes_on:
        due_at = row.now + (0 if slots else micros(UNDECIDED))
    elif active:
        since = row.now if changed else row.changed_at
        wait = min(max(timedelta(microseconds=row.now - since) / 4, LEAST_WAIT), MOST_WAIT)
        due_at = row.now + micros(wait)
    return BackfillStep(cursor, status, due_at, state, tuple(starts), changed)


def _make_start(row: BackfillRow, planned: PlannedSlot, max_payload: int) -> Start:
    """The run of a slot alone. One that follows another run of its slot takes the key from it."""
    definition, slot = row.read_definition(), planned.slot
    if planned.generation:
        definition = replace(definition, options=replace(definition.options, reuse=Reuse.ALWAYS))
    return make_start(
        row.schedule,
        definition,
        row.version,
        slot_run_id(row.schedule, slot),
        slot,
        window_start(definition.timing, slot),
        1,
        Why.BACKFILL,
        None,
        max_payload=max_payload,
        generation=planned.generation,
    )


def describe_backfill(row: BackfillRow) -> BackfillInfo:
    """A backfill as people see it."""
    state, timing = read_backfill(row.state), row.read_definition().timing
    start, end = from_micros(row.start_at), from_micros(row.end_at)
    return BackfillInfo(
        id=row.id,
        schedule=row.schedule,
        version=row.version,
        start=start,
        end=end,
        rerun=Rerun(row.rerun),
        force=bool(row.forced),
        max_active=row.max_active,
        status=BackfillStatus(row.phase),
        note=row.note,
        slots=count_slots(timing, start, end),
        looked_at=state.started + sum(state.left.values()),
        left=state.left,
        started=state.started,
        completed=state.completed,
        failed=state.failed,
        running=tuple(run.key for run in state.active),
        created_at=from_micros(row.created_at),
        changed_at=from_micros(row.changed_at),
        finished_at=optional(row.finished_at),
    )


class EngineBackfills(Protocol):
    """What an engine can do with backfills."""

    async def create(self, request: BackfillRequest) -> BackfillInfo | None:
        """Begin a backfill, or find the one with its id. None: there is no such schedule.

        InvalidValue: its range cannot be filled. KeyConflict: another one has its id.
        """

    async def plan(self, request: BackfillRequest) -> BackfillPlan | None:
        """What a backfill would do with each slot, without doing it. None: there is no such schedule."""

    async def get(self, id: str) -> BackfillInfo | None:
        """A backfill."""

    async def list(self, schedule: str | None, limit: int) -> Sequence[BackfillInfo]:
        """Backfills, newest first; of one schedule, or of all."""

    async def change(
        self, id: str, status: BackfillStatus, among: Collection[BackfillStatus], note: str | None
    ) -> BackfillInfo | None:
        """Pause, resume or cancel a backfill that stands in one of these ways, and leave any other as it is.

        What it became or is. None: there is no such backfill.
        """
