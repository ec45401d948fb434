"""Backfills in tables: scripts that create them, carry them on and change them, and that read what became of slots."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from semel.contract.backfill import (
    BackfillStatus,
    CoveringRun,
    PlannedSlot,
    RecordedRun,
    SkippedRange,
    SlotRecords,
    before,
    check_range,
    plan_slots,
)
from semel.contract.lifecycle import Status
from semel.contract.slot_policy import SkipReason
from semel.contract.times import from_micros, instant
from semel.engine.backfills import (
    CHUNK,
    NEW_BACKFILL,
    BackfillRequest,
    BackfillRow,
    StoredBackfill,
    next_slots,
    note_ends,
    read_backfill,
    room_of,
    step_backfill,
)
from semel.engine.schedules import ScheduleDefinition, ScheduleRow, read_state
from semel.engine.ticks import Start
from semel.engines.journal.runs import run_row
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure

SCHEDULE_IS_GONE: Final = "its schedule was deleted"
_STARTED: Final = 1

Statuses = Mapping[str, Status | None]
"""How executions stand. None: it is not known any more how they ended."""


class BackfillRuns(Protocol):
    """Where the runs of backfills are executed. See Runs, which it is a part of."""

    def statuses(self, executions: Collection[str]) -> Script[Statuses]:
        """How each of these executions stands."""

    def start(self, starts: Sequence[Start]) -> Script[list[tuple[str, bytes | None]]]:
        """The executions of runs; with a request if they are to be started afterwards."""


class StepResult(NamedTuple):
    """What one transaction of a backfill came to."""

    row: BackfillRow
    status: BackfillStatus
    started: tuple[Start, ...]


@procedure(ConnectionRole.CONTROL)
def create(namespace: str, request: BackfillRequest) -> Script[BackfillRow | None]:
    """Begin a backfill, or find the one with its id. None: there is no such schedule."""
    schedules = yield SqlQuery("lock_schedule", (namespace, request.schedule))
    found = yield SqlQuery("backfill_of", (namespace, request.id))
    if found:
        return BackfillRow(*found[0])
    if not schedules:
        return None
    schedule = ScheduleRow(*schedules[0])
    timing = ScheduleDefinition.from_bytes(schedule.definition, schedule.id).timing
    start, end = check_range(timing, request.start, request.end, from_micros(schedule.now))
    yield SqlQuery(
        "add_backfill",
        (
            namespace,
            request.id,
            request.schedule,
            schedule.version,
            schedule.definition,
            instant(start),
            instant(end),
            request.rerun.value,
            int(request.force),
            request.max_active,
            instant(before(start)),
            NEW_BACKFILL,
        ),
    )
    ((*row,),) = yield SqlQuery("backfill_of", (namespace, request.id))
    return BackfillRow(*row)


@procedure(ConnectionRole.READ, atomic=True)
def get(namespace: str, id_: str) -> Script[BackfillRow | None]:
    """One backfill."""
    rows = yield SqlQuery("backfill_of", (namespace, id_))
    return BackfillRow(*rows[0]) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def newest(namespace: str, schedule: str | None, limit: int) -> Script[list[BackfillRow]]:
    """Backfills, newest first; of one schedule, or of all."""
    return [BackfillRow(*row) for row in (yield SqlQuery("list_backfills", (namespace, schedule, limit)))]


@procedure(ConnectionRole.READ, atomic=True)
def find_due(namespace: str, limit: int) -> Script[list[BackfillRow]]:
    """Backfills that somebody has to look at now."""
    return [BackfillRow(*row) for row in (yield SqlQuery("find_due_backfills", (namespace, limit)))]


@procedure(ConnectionRole.CONTROL)
def change(
    namespace: str, id_: str, status: BackfillStatus, among: Collection[BackfillStatus], note: str | None
) -> Script[BackfillRow | None]:
    """Pause, resume or cancel a backfill that stands in one of these ways; as it is afterwards. None: there is none."""
    rows = yield SqlQuery("lock_backfill", (namespace, id_))
    if not rows:
        return None
    if BackfillRow(*rows[0]).phase in among:
        yield SqlQuery("change_backfill", (namespace, id_, status.value, note))
        rows = yield SqlQuery("backfill_of", (namespace, id_))
    return BackfillRow(*rows[0])


@procedure(ConnectionRole.CONTROL, atomic=True)
def put_off(namespace: str, id_: str, micros: int) -> Script[None]:
    """Look at a backfill that is due somewhat later."""
    yield SqlQuery("put_off_backfill", (namespace, id_, micros))


@procedure(ConnectionRole.READ)
def executions_to_ask(namespace: str, row: BackfillRow) -> Script[list[str]]:
    """The executions that the next step has to know the state of, as far as they have been started."""
    active = yield from _active_runs(namespace, read_backfill(row.state))
    asked = [execution for execution, started in active.values() if started == _STARTED]
    slots = next_slots(row, None)
    if slots and row.phase == BackfillStatus.RUNNING:
        runs = yield from _runs_of(namespace, row.schedule, slots)
        asked += [execution for *_, execution, started in runs if started == _STARTED]
    return asked


@procedure(ConnectionRole.CONTROL)
def step(namespace: str, id_: str, where: BackfillRuns, max_payload: int, keep: int) -> Script[StepResult | None]:
    """Carry on a backfill that is still due: its cursor and its runs are committed together."""
    rows = yield SqlQuery("lock_due_backfill", (namespace, id_))
    if not rows:
        return None
    row = BackfillRow(*rows[0])
    state = note_ends(read_backfill(row.state), (yield from _ends(namespace, row, where)))
    slots: list[datetime] = []
    records, whole = None, False
    if room_of(row, state):
        schedules = yield SqlQuery("lock_schedule", (namespace, row.schedule))
        if not schedules:
            row = row._replace(phase=BackfillStatus.CANCELLED, note=SCHEDULE_IS_GONE)
        else:
            schedule = ScheduleRow(*schedules[0])
            # What a schedule that is not paused has yet to decide about is decided by itself first.
            open_from = None if schedule.paused_at is not None else from_micros(schedule.cursor)
            coming = next_slots(row, None)
            slots = next_slots(row, open_from)
            whole = len(coming) < CHUNK and len(slots) == len(coming)
            records = yield from read_records(namespace, schedule, slots, where, keep)
    done = step_backfill(row, state, slots, records, whole=whole, max_payload=max_payload)
    starts = tuple(start for start, _ in done.starts)
    executions = yield from where.start(starts)
    if starts:
        runs = [run_row(start, *execution) for start, execution in zip(starts, executions, strict=True)]
        yield SqlBatch("add_runs", runs, (namespace,))
    stored = done.state.to_bytes()
    yield SqlQuery(
        "advance_backfill",
        (namespace, id_, done.cursor, done.status.value, done.due_at, stored, row.note, int(done.changed)),
    )
    return StepResult(row, done.status, starts)


def _ends(namespace: str, row: BackfillRow, where: BackfillRuns) -> Script[list[Status | None]]:
    """How the active runs of a backfill stand, in their order. One that is yet to be started is pending."""
    state = read_backfill(row.state)
    runs = yield from _active_runs(namespace, state)
    known = yield from where.statuses([execution for execution, started in runs.values() if started == _STARTED])
    found: list[Status | None] = []
    for run in state.active:
        execution, started = runs.get((run.key, run.generation), ("", _STARTED))
        found.append(known.get(execution) if started == _STARTED else Status.PENDING)
    return found


def _active_runs(namespace: str, state: StoredBackfill) -> Script[dict[tuple[str, int], tuple[str, int]]]:
    """The executions of the active runs of a backfill, and whether they were started."""
    if not state.active:
        return {}
    wanted: list[Row] = [(run.key, run.generation) for run in state.active]
    rows = yield SqlBatch("runs_by_generation", wanted, (namespace,))
    return {(key, generation): (execution, started) for key, generation, execution, started in rows}


@procedure(ConnectionRole.READ)
def executions_of_slots(namespace: str, schedule: str, slots: Sequence[datetime]) -> Script[list[str]]:
    """The executions of all runs of some slots that have been started."""
    runs = yield from _runs_of(namespace, schedule, slots)
    return [execution for *_, execution, started in runs if started == _STARTED]


@procedure(ConnectionRole.READ)
def plan(
    namespace: str, request: BackfillRequest, slots: Sequence[datetime], where: BackfillRuns, keep: int
) -> Script[list[PlannedSlot]]:
    """What a backfill would do with some slots, which are in order."""
    rows = yield SqlQuery("schedule_of", (namespace, request.schedule))
    if not rows:
        return []
    records = yield from read_records(namespace, ScheduleRow(*rows[0]), slots, where, keep)
    return plan_slots(slots, records, request.rerun, request.force)


def _runs_of(namespace: str, schedule: str, slots: Sequence[datetime]) -> Script[list[Row]]:
    """Runs of some slots, which are in order; and the run of several slots that may cover the last of them."""
    first, last = instant(before(slots[0])), instant(slots[-1])
    rows = yield SqlQuery("slot_runs", (namespace, schedule, first, last))
    rows += yield SqlQuery("covering_run", (namespace, schedule, last + 1))
    return rows


def read_records(
    namespace: str, schedule: ScheduleRow, slots: Sequence[datetime], where: BackfillRuns, keep: int
) -> Script[SlotRecords]:
    """What is on record of some slots, which are in order. Records are kept for so many microseconds."""
    rows = (yield from _runs_of(namespace, schedule.id, slots)) if slots else []
    known = yield from where.statuses([execution for *_, execution, started in rows if started == _STARTED])
    runs: dict[datetime, RecordedRun] = {}
    covering: list[CoveringRun] = []
    for slot, generation, begin, count, execution, started in rows:
        status = known.get(execution) if started == _STARTED else Status.PENDING
        runs[from_micros(slot)] = RecordedRun(generation, status)
        if count > 1 and begin is not None:
            covering.append(CoveringRun(from_micros(begin), from_micros(slot), status))
    skips: list[Row] = []
    if slots:
        first, last = instant(before(slots[0])), instant(slots[-1])
        skips = yield SqlQuery("slot_skips", (namespace, schedule.id, first, last))
    ((oldest,),) = yield SqlQuery("oldest_record", (namespace, schedule.id))
    since = max(schedule.now - keep, schedule.cursor + 1 if oldest is None else oldest)
    return SlotRecords(
        runs=runs,
        covering=tuple(covering),
        skipped=tuple(SkippedRange(from_micros(a), from_micros(b), SkipReason(reason)) for a, b, reason in skips),
        waiting=read_state(schedule.state).line,
        created_at=from_micros(schedule.created_at),
        decided_until=from_micros(schedule.cursor),
        known_since=from_micros(since),
    )


@procedure(ConnectionRole.CONTROL)
def forget(namespace: str, keep: int, limit: int) -> Script[int]:
    """Forget backfills that have ended so many microseconds ago; how many there were."""
    ((_, now),) = yield SqlQuery("next_due_schedule", (namespace,))
    return len((yield SqlQuery("forget_backfills", (namespace, now - keep, limit))))
