"""What could be wrong with schedules, as `semel doctor` looks at them: on every engine by the same scripts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from semel.contract.durations import format_duration
from semel.contract.times import from_micros, micros
from semel.engine.protocol import Finding, WorkerState
from semel.engine.schedules import ActiveRun, ScheduleDefinition, ScheduleRow, read_state
from semel.engine.served_functions import MOST_SHOWN, is_unserved
from semel.engine.ticks import PAUSED_ITSELF, Ended
from semel.engines.journal import schedule_scripts as scripts
from semel.engines.journal.runs import Runs
from semel.engines.journal.script import ConnectionRole, Script, ScriptRunner, procedure
from semel.runtime.retries import retry_unavailable

LATE: Final = timedelta(minutes=1)
"""A schedule that was due for so long and that nobody has looked at is late."""
CLOCKS_DIFFER: Final = timedelta(seconds=5)
"""A cursor that is less ahead than this is told to nobody: clocks differ a little."""
PAGE: Final = 500
MOST_ASKED: Final = 200
"""So many schedules are asked whether they have ever run: most tell by their state."""
END_OF_TIME: Final = 2**62


@procedure(ConnectionRole.READ)
def read_ends(rows: list[ScheduleRow], where: Runs) -> Script[Ended]:
    """How runs stand that were active when somebody looked last."""
    return (yield from where.ends(rows))


async def examine_schedules(
    store: ScriptRunner, namespace: str, where: Runs, workers: Sequence[WorkerState]
) -> list[Finding]:
    """One finding for each thing that is wrong with some schedules, after one that counts them."""
    rows: list[ScheduleRow] = []
    while page := await retry_unavailable(store.run, scripts.page, namespace, rows[-1].id if rows else "", PAGE):
        rows += page
    if not rows:
        return [Finding(True, "schedules", "none")]
    paused = sum(row.paused_at is not None for row in rows)
    found = [
        _find_late(rows, workers),
        _find_ahead(rows),
        _find_paused_by_themselves(rows),
        _find_unserved(rows, workers),
        await _find_never_fired(store, namespace, rows),
        await _find_overdue(store, where, rows),
    ]
    return [Finding(True, "schedules", f"{len(rows)}, {paused} of them paused"), *filter(None, found)]


def _find_late(rows: Sequence[ScheduleRow], workers: Sequence[WorkerState]) -> Finding | None:
    """Schedules that were due long ago and that nobody has looked at."""
    late = [row for row in rows if row.due_at is not None and row.now - row.due_at > micros(LATE)]
    told = [f"{row.id} (due since {_spell(from_micros(row.due_at or 0))})" for row in late]
    if workers:
        why = "workers run, and none starts their runs. Was every one started with --no-schedules? See their logs"
    else:
        why = "no worker runs. Start one with: semel worker"
    return _finding("late schedules", told, why)


def _find_ahead(rows: Sequence[ScheduleRow]) -> Finding | None:
    """Schedules that are covered until a time that has not come: a clock ran ahead and came back."""
    ahead = [row for row in rows if row.cursor - row.now > micros(CLOCKS_DIFFER)]
    told = [f"{row.id} (until {_spell(from_micros(row.cursor))})" for row in ahead]
    return _finding("schedules in the future", told, "a clock ran ahead and came back: nothing fires until then")


def _find_paused_by_themselves(rows: Sequence[ScheduleRow]) -> Finding | None:
    paused = [row for row in rows if row.paused_at is not None and (row.note or "").startswith(PAUSED_ITSELF)]
    told = [f"{row.id} ({row.note})" for row in paused]
    return _finding("schedules that paused", told, "see why their runs fail, then: semel schedules resume")


def _find_unserved(rows: Sequence[ScheduleRow], workers: Sequence[WorkerState]) -> Finding | None:
    """Schedules of functions that no worker has, although workers run."""
    told = []
    for row in rows:
        options = _definition(row).options
        if is_unserved(workers, options.name, options.queue):
            told.append(f"{row.id} ({options.kind} {options.name!r} on queue {options.queue!r})")
    return _finding("schedules without a function", told, "no worker has it: deploy one that does, or delete them")


async def _find_never_fired(store: ScriptRunner, namespace: str, rows: Sequence[ScheduleRow]) -> Finding | None:
    """Schedules whose slots have come and were all skipped."""
    told = []
    for row in [row for row in rows if row.cursor > row.created_at and not _has_run(row)][:MOST_ASKED]:
        if await retry_unavailable(store.run, scripts.runs, namespace, row.id, END_OF_TIME, 1):
            continue
        skipped = await retry_unavailable(store.run, scripts.skipped_slots, namespace, row.id, END_OF_TIME, 1)
        if skipped:
            told.append(f"{row.id} (last: {skipped[0]})")
    return _finding(
        "schedules that never ran", told, "all slots that have come were skipped. See: semel schedules show"
    )


def _has_run(row: ScheduleRow) -> bool:
    """Whether the state alone tells that it has."""
    state = read_state(row.state)
    return bool(state.active or state.completed or state.failures or state.last_end)


async def _find_overdue(store: ScriptRunner, where: Runs, rows: Sequence[ScheduleRow]) -> Finding | None:
    """Runs that have not ended by the time that their schedule declares."""
    suspects = {row.id: late for row in rows if (late := _past_finish_by(row))}
    if not suspects:
        return None
    asked = [row for row in rows if row.id in suspects]
    await where.prepare(asked, (), start=False)
    ended = await retry_unavailable(store.run, read_ends, asked, where)
    told = []
    for row in asked:
        finish_by = _definition(row).finish_by or timedelta()
        for run in suspects[row.id]:
            status = ended.get(run.execution)
            if status is not None and status[0].live:
                told.append(
                    f"{row.id} {_spell(run.slot)} ({run.execution}, to finish within {format_duration(finish_by)})"
                )
    return _finding("runs that are not finished", told, "see: semel show")


def _past_finish_by(row: ScheduleRow) -> list[ActiveRun]:
    finish_by = _definition(row).finish_by
    if finish_by is None:
        return []
    return [run for run in read_state(row.state).active if run.slot + finish_by < from_micros(row.now)]


def _definition(row: ScheduleRow) -> ScheduleDefinition:
    return ScheduleDefinition.from_bytes(row.definition, row.id)


def _spell(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _finding(what: str, told: Sequence[str], why: str) -> Finding | None:
    """What is wrong, with the first schedules by name; None: nothing is."""
    if not told:
        return None
    more = f" and {len(told) - MOST_SHOWN} more" if len(told) > MOST_SHOWN else ""
    return Finding(False, what, f"{', '.join(told[:MOST_SHOWN])}{more}: {why}")
