"""Differences between what is on record of schedules and what runs, found and repaired: on every engine alike."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from semel.contract.reconciliation import Difference, DifferenceKind
from semel.contract.runs import Why
from semel.contract.slot_policy import SkipReason
from semel.contract.times import from_micros, instant, micros
from semel.engine.schedules import ScheduleDefinition, ScheduleRow, read_state
from semel.engine.ticks import Ended
from semel.engines.journal import schedule_scripts as scripts
from semel.engines.journal.runs import Runs
from semel.engines.journal.schedule_health import CLOCKS_DIFFER, PAGE, read_ends
from semel.engines.journal.schedule_scripts import AT_ONCE
from semel.engines.journal.script import ConnectionRole, Row, Script, ScriptRunner, SqlBatch, SqlQuery, procedure
from semel.errors import NotDecodable
from semel.runtime.retries import retry_unavailable
from semel.triggers.ids import parse_run_id

log = logging.getLogger("semel.schedules")
SETTLED: Final = timedelta(minutes=1)
"""What is younger may be under way: a worker is about to see to it."""
MOST_FOUND: Final = 1000
"""So many runs of one kind are told at once; after a fix there may be more."""
LOOKED_AT: Final = "the next worker looks at it"


@procedure(ConnectionRole.READ, atomic=True)
def find_unstarted(namespace: str, before: int, limit: int) -> Script[list[Row]]:
    """Runs that are on record since before a time, and not started: key, generation, schedule."""
    return (yield SqlQuery("unstarted_before", (namespace, before, limit)))


@procedure(ConnectionRole.CONTROL, atomic=True)
def wake(namespace: str, id_: str) -> Script[bool]:
    """Have a schedule looked at now, unless it is paused."""
    return bool((yield SqlQuery("wake_schedule", (namespace, id_))))


@procedure(ConnectionRole.CONTROL, atomic=True)
def set_back(namespace: str, id_: str, ahead: int, cursor: int) -> Script[bool]:
    """Set a cursor back that was ahead, unless it has moved meanwhile."""
    return bool((yield SqlQuery("set_back_cursor", (namespace, id_, ahead, cursor))))


@procedure(ConnectionRole.READ)
def find_dropped(namespace: str, slots: list[tuple[str, int]]) -> Script[set[tuple[str, int]]]:
    """Those of these slots, by schedule and time, whose runs were dropped because nobody began them in time."""
    dropped = set()
    for id_, slot in slots:
        found = yield SqlQuery("skipped_slot", (namespace, id_, slot))
        if found and found[0][3] == SkipReason.DEADLINE.value:
            dropped.add((id_, slot))
    return dropped


@procedure(ConnectionRole.CONTROL, atomic=True)
def record_runs(namespace: str, rows: list[Row]) -> Script[None]:
    """Put runs on record that are not."""
    yield SqlBatch("add_runs", rows, (namespace,))


class Reconciliation:
    """One look at the schedules of a namespace. Nothing is changed unless it is to `fix`; each change is logged."""

    def __init__(self, store: ScriptRunner, namespace: str, where: Runs, keep: timedelta, *, fix: bool) -> None:
        self._store = store
        self._namespace = namespace
        self._where = where
        self._keep = keep
        self._fix = fix

    async def run(self) -> list[Difference]:
        """Everything that does not agree."""
        rows: list[ScheduleRow] = []
        after = ""
        while page := await retry_unavailable(self._store.run, scripts.page, self._namespace, after, PAGE):
            rows += page
            after = page[-1].id
        found = await self._compare_unstarted(rows)
        for row in rows:
            found += await self._compare_cursor(row)
        found += await self._compare_active([row for row in rows if read_state(row.state).active])
        return found + await self._compare_executions(rows)

    async def _compare_cursor(self, row: ScheduleRow) -> list[Difference]:
        """A schedule that nobody will look at, or that is covered until a time that has not come."""
        definition = _definition(row)
        if definition is None:
            return []
        timing, cursor = definition.timing, from_micros(row.cursor)
        if row.cursor - row.now > micros(CLOCKS_DIFFER):
            newest = None if timing.after == "finish" else timing.newest_slot(from_micros(row.now))
            back = row.now if newest is None else instant(newest)
            detail = f"covered until {cursor:%Y-%m-%d %H:%M:%S} UTC, which has not come: nothing fires until then"
            found = Difference(DifferenceKind.AHEAD, row.id, detail)
            fixed = self._fix and await self._store.run(set_back, self._namespace, row.id, row.cursor, back)
            return [self._note(found, fixed, f"the cursor is set back to {from_micros(back):%Y-%m-%d %H:%M:%S} UTC")]
        if row.paused_at is None and row.due_at is None and timing.after == "start":
            coming = timing.next_slot(cursor)
            if coming is not None:
                detail = f"nobody will look at it, and its next slot is {coming:%Y-%m-%d %H:%M:%S} UTC"
                found = Difference(DifferenceKind.ASLEEP, row.id, detail)
                fixed = self._fix and await self._store.run(wake, self._namespace, row.id)
                return [self._note(found, fixed, LOOKED_AT)]
        return []

    async def _compare_active(self, rows: Sequence[ScheduleRow]) -> list[Difference]:
        """Runs that are taken for active, and are not."""
        found: list[Difference] = []
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            await self._where.prepare(some, (), start=False)
            ended = await retry_unavailable(self._store.run, read_ends, list(some), self._where)
            for row in some:
                for one in _compare_ends(row, ended):
                    fixed = self._fix and await self._store.run(wake, self._namespace, row.id)
                    found.append(self._note(one, fixed, LOOKED_AT))
        return found

    async def _compare_unstarted(self, rows: Sequence[ScheduleRow]) -> list[Difference]:
        """Runs that were decided and not started, long enough ago."""
        if not rows:
            return []
        before = rows[0].now - micros(SETTLED)
        pending = await self._find_unstarted(before)
        if not pending:
            return []
        left: set[tuple[str, int]] = set()
        if self._fix:
            await self._where.start_pending()
            left = {(key, generation) for key, generation, _ in await self._find_unstarted(before)}
        return [
            self._note(
                Difference(DifferenceKind.UNSTARTED, schedule, f"run {key} is on record and was not started"),
                self._fix and (key, generation) not in left,
                "it is started",
            )
            for key, generation, schedule in pending
        ]

    async def _find_unstarted(self, before: int) -> list[Row]:
        return await retry_unavailable(self._store.run, find_unstarted, self._namespace, before, MOST_FOUND)

    async def _compare_executions(self, rows: Sequence[ScheduleRow]) -> list[Difference]:
        """Executions of slots that have no run on record, as far back as records are kept."""
        known = {row.id: row for row in rows}
        if not known:
            return []
        since = rows[0].now - micros(self._keep)
        found: list[Difference] = []
        started: list[tuple[str, str, ScheduleRow, int]] = []
        for key, execution in await self._where.find_unrecorded(self._store, since, MOST_FOUND):
            parsed = parse_run_id(key)
            if parsed is not None and parsed[1] is not None and parsed[0] in known:
                started.append((key, execution, known[parsed[0]], instant(parsed[1])))
        slots = [(row.id, slot) for _, _, row, slot in started]
        dropped = await retry_unavailable(self._store.run, find_dropped, self._namespace, slots) if slots else set()
        for key, execution, row, slot in started:
            if (row.id, slot) in dropped:
                continue
            if self._fix:
                record = (key, 0, row.id, slot, Why.SLOT.value, execution, row.version, None, 1, None)
                await self._store.run(record_runs, self._namespace, [record])
            detail = f"execution {execution} has the key {key}, and no run is on record"
            found.append(
                self._note(Difference(DifferenceKind.UNRECORDED, row.id, detail), self._fix, "the run is recorded")
            )
        return found

    def _note(self, found: Difference, fixed: bool, how: str) -> Difference:
        if not fixed:
            return found
        log.warning("reconcile: schedule %s is %s (%s): %s", found.schedule, found.kind, found.detail, how)
        return replace(found, detail=f"{found.detail}; {how}", fixed=True)


def _compare_ends(row: ScheduleRow, ended: Ended) -> list[Difference]:
    """Active runs whose executions are gone; and those that have ended, if something waits for that."""
    state, found = read_state(row.state), []
    for run in state.active:
        status, at = ended.get(run.execution, (None, None))
        if status is None or (status.terminal and at is None):
            detail = f"execution {run.execution} of {run.slot:%Y-%m-%d %H:%M:%S} UTC is not known any more"
            found.append(Difference(DifferenceKind.LOST, row.id, detail))
        elif at is not None and state.line and row.paused_at is None and from_micros(row.now) - at > SETTLED:
            detail = f"{len(state.line)} slots wait for execution {run.execution}, which has ended"
            found.append(Difference(DifferenceKind.UNNOTICED, row.id, detail))
    return found


def _definition(row: ScheduleRow) -> ScheduleDefinition | None:
    """Its definition. None: a newer release has written it, and looks after it."""
    try:
        return ScheduleDefinition.from_bytes(row.definition, row.id)
    except NotDecodable:
        return None
