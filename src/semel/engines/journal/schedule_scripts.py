"""Schedules in tables: scripts that create, change, look at and trigger them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from semel.codec import decode_plain
from semel.contract.first_slots import first_cursor, first_line
from semel.contract.runs import Change, ChangeKind, ScheduleInfo, ScheduleRun, SkippedSlots, Why
from semel.contract.slot_policy import SkipReason
from semel.contract.times import from_micros, instant, optional
from semel.engine.declarations import Declared, Stored, plan_change
from semel.engine.schedules import (
    ActiveRun,
    Owner,
    ScheduleDefinition,
    ScheduleRow,
    StoredState,
    read_state,
)
from semel.engine.ticks import (
    Advance,
    Begun,
    Ended,
    Start,
    advance,
    advance_all,
    end_pause,
    last_completed,
    make_manual_start,
    overdue_runs,
)
from semel.engines.journal.event_scripts import apply_subscriptions
from semel.engines.journal.runs import Runs, run_row
from semel.engines.journal.script import ConnectionRole, Procedure, Row, Script, SqlBatch, SqlQuery, procedure
from semel.engines.journal.silence import Silence
from semel.triggers.ids import slot_run_id
from semel.triggers.words import describe_timing

AT_ONCE: Final = 1000
"""Schedules that are looked at in one transaction."""


class TickResult(NamedTuple):
    """What one transaction of ticks came to."""

    looked: int
    started: tuple[Start, ...]
    advances: tuple[Advance, ...]


@procedure(ConnectionRole.READ, atomic=True)
def find_due(namespace: str, limit: int) -> Script[list[ScheduleRow]]:
    """Schedules that somebody has to look at now."""
    return [ScheduleRow(*row) for row in (yield SqlQuery("find_due_schedules", (namespace, limit)))]


@procedure(ConnectionRole.READ, atomic=True)
def late(namespace: str, after: int, limit: int) -> Script[tuple[int, float]]:
    """How many schedules have been due for longer than so many microseconds, and the longest for how many seconds."""
    ((count, since, now),) = yield SqlQuery("late_schedules", (namespace, after, limit))
    return int(count), 0.0 if since is None else (now - since) / 1e6


@procedure(ConnectionRole.READ, atomic=True)
def next_due(namespace: str) -> Script[tuple[int | None, int]]:
    """When somebody has to look next, and what time it is."""
    ((at, now),) = yield SqlQuery("next_due_schedule", (namespace,))
    return at, now


@procedure(ConnectionRole.CONTROL)
def tick(
    namespace: str, ids: list[str] | None, where: Runs, max_payload: int, silence: Silence | None = None
) -> Script[TickResult]:
    """Look at those of these schedules that are still due, or at the next that are. Cursors and runs commit together.

    Those that somebody else looks at now are passed over.
    """
    if ids is None:
        found = yield SqlQuery("lock_next_schedules", (namespace, AT_ONCE))
    else:
        found = yield SqlBatch("lock_due_schedules", [(id_,) for id_ in ids], (namespace,))
    down_for = 0 if silence is None else silence.measure()
    rows = sorted([ScheduleRow(*row) for row in found])
    if not rows:
        return TickResult(0, (), ())
    ended = yield from where.ends(rows)
    begun = yield from _drop_overdue(namespace, rows, where)
    previous = yield from _previous_results(rows, ended, where)
    advances = advance_all(rows, ended, previous, begun, down_for=down_for, max_payload=max_payload)
    started = yield from _carry_out(namespace, advances, where)
    return TickResult(len(rows), tuple(started), tuple(advances))


TickScript = Procedure[[str, list[str] | None, Runs, int, Silence | None], TickResult]
tick_beside: Final[TickScript] = procedure(ConnectionRole.ADMIT)(tick.script)
"""The same on another connection: two at once look at different schedules."""


def _drop_overdue(namespace: str, rows: Sequence[ScheduleRow], where: Runs) -> Script[Begun]:
    """Drop the runs that should have begun by now: then they never were, and their slots are skipped."""
    overdue = {run.execution: slot_run_id(row.id, run.slot) for row in rows for run in overdue_runs(row)}
    if not overdue:
        return {}
    begun = yield from where.drop_unbegun([*overdue])
    dropped = [(key,) for execution, key in overdue.items() if begun.get(execution) is False]
    if dropped:
        yield SqlBatch("drop_runs", dropped, (namespace,))
    return begun


@procedure(ConnectionRole.CONTROL, atomic=True)
def put_off(namespace: str, id_: str, micros: int) -> Script[None]:
    """Look at a schedule that is due somewhat later."""
    yield SqlQuery("put_off_schedule", (namespace, id_, micros))


def _previous(row: ScheduleRow, ended: Ended, where: Runs) -> Script[Any]:
    """The result of the run before, for a function that wants its Run."""
    return (yield from _previous_results([row], ended, where)).get(row.id)


def _previous_results(rows: Sequence[ScheduleRow], ended: Ended, where: Runs) -> Script[dict[str, Any]]:
    """The results of the runs before, by the ids of those schedules whose functions want their Run."""
    completed = {row.id: run for row in rows if (run := last_completed(row, ended)) is not None}
    if not completed:
        return {}
    outputs = yield from where.outputs_of(list(completed.values()))
    return {id_: decode_plain(outputs.get(run)) for id_, run in completed.items()}


def _carry_out(namespace: str, advances: Sequence[Advance], where: Runs) -> Script[list[Start]]:
    """Stop, start and write down what looks at schedules came to."""
    for one in advances:
        if one.stop is not None:
            for execution in one.stopped:
                yield from where.stop(execution, one.stop)
    starts = [start for one in advances for start in one.starts]
    executions = yield from where.start(starts)
    moved: list[Row] = []
    begun = iter(executions)
    for one in advances:
        state = one.add_active([next(begun)[0] for _ in one.starts]).to_bytes()
        if one.paused_now:
            yield SqlQuery("pause_schedule", (namespace, one.id, one.note, state))
        else:
            moved.append((one.id, one.cursor, one.due_at, state))
    if moved:
        yield SqlBatch("advance_schedules", moved, (namespace,))
    if starts:
        runs = [run_row(start, *execution) for start, execution in zip(starts, executions, strict=True)]
        yield SqlBatch("add_runs", runs, (namespace,))
    skipped = [
        (one.id, instant(s.first), instant(s.last), s.count, s.reason.value, s.into and instant(s.into))
        for one in advances
        for s in one.skipped
    ]
    if skipped:
        yield SqlBatch("add_skipped", skipped, (namespace,))
    return starts


@procedure(ConnectionRole.CONTROL)
def apply(
    namespace: str,
    declared: list[Declared],
    prune: Collection[Owner],
    take_over: bool,
    write: bool,
    where: Runs,
    max_payload: int,
) -> Script[list[Change]]:
    """Create, change and delete schedules and subscriptions, all or none. Two that do it at once do it once."""
    ordered = sorted(declared, key=lambda one: one.id)
    schedules = [one for one in ordered if isinstance(one.definition, ScheduleDefinition)]
    changes: list[Change] = []
    for one in schedules:
        definition = one.definition
        assert isinstance(definition, ScheduleDefinition)
        rows = yield SqlQuery("lock_schedule" if write else "schedule_of", (namespace, one.id))
        change = plan_change(one, Stored(*rows[0][1:4]) if rows else None, take_over)
        changes.append(change)
        if write and change.kind is ChangeKind.CREATE:
            yield from _create(namespace, one.id, one.owner, definition)
        elif write and change.kind is ChangeKind.CHANGE:
            row = ScheduleRow(*rows[0])
            ended = yield from where.ends([row])
            previous = yield from _previous(row, ended, where)
            moved = advance(row, ended, previous, new=definition, max_payload=max_payload)
            yield from _carry_out(namespace, [moved], where)
            yield SqlQuery("change_schedule", (namespace, one.id, one.owner, definition.to_bytes()))
    if prune:
        changes += yield from _prune(namespace, {one.id for one in schedules}, prune, write)
    others = [one for one in ordered if not isinstance(one.definition, ScheduleDefinition)]
    return changes + (yield from apply_subscriptions(namespace, others, prune, take_over, write))


def _create(namespace: str, id_: str, owner: Owner, definition: ScheduleDefinition) -> Script[None]:
    ((_, now),) = yield SqlQuery("next_due_schedule", (namespace,))
    timing, at = definition.timing, from_micros(now)
    state = StoredState(line=first_line(timing, at)).to_bytes()
    cursor = instant(first_cursor(timing, at))
    yield SqlQuery("add_schedule", (namespace, id_, owner, definition.to_bytes(), cursor, None, state))


def _prune(namespace: str, known: set[str], owners: Collection[Owner], write: bool) -> Script[list[Change]]:
    """Delete those of some owners that are not declared any more."""
    changes, after = [], ""
    while rows := (yield SqlQuery("list_schedules", (namespace, after, AT_ONCE))):
        after = rows[-1][0]
        for row in map(ScheduleRow._make, rows):
            if row.owner in owners and row.id not in known:
                changes.append(Change(ChangeKind.DELETE, row.id))
                if write:
                    yield SqlQuery("delete_schedule", (namespace, row.id))
    return changes


@procedure(ConnectionRole.CONTROL)
def pause(namespace: str, id_: str, note: str | None) -> Script[bool]:
    """Let no slot fire. One that is paused stays so since when it was, with the new note."""
    rows = yield SqlQuery("lock_schedule", (namespace, id_))
    if not rows:
        return False
    row = ScheduleRow(*rows[0])
    told = note if row.paused_at is None else note or row.note
    yield SqlQuery("pause_schedule", (namespace, id_, told, row.state))
    return True


@procedure(ConnectionRole.CONTROL)
def resume(namespace: str, id_: str, note: str | None) -> Script[bool]:
    """Let slots fire again; what was missed meanwhile is decided at the next look."""
    rows = yield SqlQuery("lock_schedule", (namespace, id_))
    if not rows:
        return False
    row = ScheduleRow(*rows[0])
    if row.paused_at is not None:
        yield SqlQuery("resume_schedule", (namespace, id_, note, end_pause(row).to_bytes()))
    return True


@procedure(ConnectionRole.CONTROL)
def delete(namespace: str, id_: str) -> Script[bool]:
    """Remove a schedule."""
    return bool((yield SqlQuery("delete_schedule", (namespace, id_))))


@procedure(ConnectionRole.CONTROL)
def trigger(
    namespace: str, id_: str, request_key: str, where: Runs, max_payload: int
) -> Script[tuple[str, bool] | None]:
    """Start a run by hand: its key, and whether it was there already."""
    rows = yield SqlQuery("lock_schedule", (namespace, id_))
    if not rows:
        return None
    row = ScheduleRow(*rows[0])
    previous = yield from _previous(row, (yield from where.ends([row])), where)
    start = make_manual_start(row, request_key, previous, max_payload=max_payload)
    key = start.request.key or ""
    if (yield SqlQuery("schedule_run", (namespace, key))):
        return key, True
    ((execution, request),) = yield from where.start([start])
    yield SqlBatch("add_runs", [run_row(start, execution, request)], (namespace,))
    state = read_state(row.state)
    state = replace(state, active=(*state.active, ActiveRun(execution, start.slot)))
    yield SqlBatch("advance_schedules", [(id_, row.cursor, row.due_at, state.to_bytes())], (namespace,))
    return key, False


@procedure(ConnectionRole.READ, atomic=True)
def execution_of(namespace: str, key: str) -> Script[str]:
    """The execution of a run."""
    ((_, _, _, _, execution, *_),) = yield SqlQuery("schedule_run", (namespace, key))
    return str(execution)


@procedure(ConnectionRole.READ, atomic=True)
def recorded_keys(namespace: str, keys: list[str]) -> Script[set[str]]:
    """Those of these keys that runs on record have."""
    return {row[0] for row in (yield SqlBatch("recorded_keys", [(key,) for key in keys], (namespace,)))}


@procedure(ConnectionRole.READ, atomic=True)
def get(namespace: str, id_: str) -> Script[ScheduleRow | None]:
    """One schedule."""
    rows = yield SqlQuery("schedule_of", (namespace, id_))
    return ScheduleRow(*rows[0]) if rows else None


@procedure(ConnectionRole.READ, atomic=True)
def page(namespace: str, after: str, limit: int) -> Script[list[ScheduleRow]]:
    """Schedules, by their ids."""
    return [ScheduleRow(*row) for row in (yield SqlQuery("list_schedules", (namespace, after, limit)))]


@procedure(ConnectionRole.READ, atomic=True)
def runs(namespace: str, id_: str, before: int, limit: int) -> Script[list[ScheduleRun]]:
    """Runs of a schedule, newest first."""
    return [_run_of(id_, row) for row in (yield SqlQuery("schedule_runs", (namespace, id_, before, limit)))]


@procedure(ConnectionRole.READ, atomic=True)
def skipped_slots(namespace: str, id_: str, before: int, limit: int) -> Script[list[SkippedSlots]]:
    """Slots of a schedule that did not run, newest first."""
    return [_skipped_of(id_, row) for row in (yield SqlQuery("schedule_skips", (namespace, id_, before, limit)))]


@procedure(ConnectionRole.READ)
def find_slot(namespace: str, id_: str, key: str, slot: int | None) -> Script[ScheduleRun | SkippedSlots | None]:
    """What became of a slot, or of a run that was triggered by hand."""
    if found := (yield SqlQuery("schedule_run", (namespace, key))):
        _, generation, at, *rest = found[0]
        return _run_of(id_, (key, generation, at, *rest))
    found = [] if slot is None else (yield SqlQuery("skipped_slot", (namespace, id_, slot)))
    return _skipped_of(id_, found[0]) if found else None


@procedure(ConnectionRole.CONTROL)
def forget(namespace: str, keep: int) -> Script[int]:
    """Forget records that are older than so many microseconds; how many there were."""
    ((_, now),) = yield SqlQuery("next_due_schedule", (namespace,))
    runs_gone = yield SqlQuery("forget_runs", (namespace, now - keep, AT_ONCE))
    skipped_gone = yield SqlQuery("forget_skipped", (namespace, now - keep, AT_ONCE))
    return len(runs_gone) + len(skipped_gone)


def _run_of(id_: str, row: Row) -> ScheduleRun:
    key, generation, slot, why, execution, version, begin, slots, created = row[:9]
    return ScheduleRun(
        schedule=id_,
        key=key,
        execution=execution,
        scheduled_for=from_micros(slot),
        why=Why(why),
        version=version,
        window_start=optional(begin),
        slots=slots,
        created_at=from_micros(created),
        generation=generation,
    )


def _skipped_of(id_: str, row: Row) -> SkippedSlots:
    first, last, count, reason, into, _ = row
    return SkippedSlots(id_, SkipReason(reason), from_micros(first), from_micros(last), count, optional(into))


def info_of(row: ScheduleRow, going: Collection[str]) -> ScheduleInfo:
    """A schedule as people see it, with those of its runs that have not ended."""
    definition, state = ScheduleDefinition.from_bytes(row.definition, row.id), read_state(row.state)
    timing, options = definition.timing, definition.options
    cursor = from_micros(row.cursor)
    following = None
    if row.paused_at is None and timing.after == "start":
        following = timing.next_slot(cursor)
    return ScheduleInfo(
        id=row.id,
        kind=options.kind,
        name=options.name,
        queue=options.queue,
        when=describe_timing(timing),
        timezone=", ".join(dict.fromkeys(one.timezone for one in timing.parts)),
        misfire=definition.policy.misfire.value,
        overlap=definition.policy.overlap.value,
        version=row.version,
        owner=row.owner,
        cursor=cursor,
        next_slot=following,
        paused_at=optional(row.paused_at),
        note=row.note,
        running=tuple(run.execution for run in state.active if run.execution in going),
        waiting=tuple(run.slot for run in state.line),
        failures=state.failures,
        created_at=from_micros(row.created_at),
        changed_at=from_micros(row.changed_at),
    )
