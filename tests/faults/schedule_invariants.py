"""I5, read from the tables: every slot of a schedule is one run, or in one range of skipped slots, or waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from semel.contract.times import instant
from semel.engine.schedules import read_state
from semel.engines.journal.runs import NOT_BEGUN

SECOND = 1_000_000
Sql = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


class Grid(NamedTuple):
    """Slots at equal distances, in microseconds."""

    first: int
    every: int
    count: int

    def slots(self) -> list[int]:
        """All of them."""
        return [self.first + number * self.every for number in range(self.count)]


async def schedule_faults(sql: Sql, slots: Mapping[str, Sequence[Sequence[int]]]) -> list[str]:
    """What does not hold when all work is done. `slots`: of each schedule, in one way or another."""
    found = await run_faults(sql)
    for schedule, ways in slots.items():
        faults = [await slot_faults(sql, schedule, way) for way in ways]
        found += min(faults, key=len)
    return found


async def slot_faults(sql: Sql, schedule: str, slots: Sequence[int], *, ended: bool = True) -> list[str]:
    """What does not hold for the slots of a schedule. `ended`: its cursor is past them, and none waits any more."""
    found: list[str] = []
    runs = await sql(f"select key, slot, execution from semel_run where schedule = '{schedule}' and why <> 'manual'")
    ranges = await sql(
        f"select reason, first_slot, last_slot, slots from semel_skipped where schedule = '{schedule}' "
        "and reason not in ('excluded', 'before start')"
    )
    states = await sql(f"select cursor, state from semel_schedule where id = '{schedule}'")
    lines = [read_state(bytes(state)).line for _, state in states]
    fates = Counter(slot for _, slot, _ in runs)
    waiting = [instant(run.slot) for line in lines for run in line]
    fates.update(waiting)
    for reason, first, last, count in ranges:
        covered = [slot for slot in slots if first <= slot <= last]
        fates.update(covered)
        if len(covered) != count or first > last:
            found.append(
                f"I5: {schedule}: a range of {count} slots ({reason}) from {first} to {last} has {len(covered)}"
            )
    found += [f"I5: {schedule}: slot {slot} has {n} fates" for slot, n in sorted(fates.items()) if n > 1]
    found += [f"I5: {schedule}: {slot} is no slot of it" for slot in sorted(fates.keys() - set(slots))]
    for cursor, _ in states:
        passed = [slot for slot in slots if slot <= cursor]
        found += [f"I5: {schedule}: slot {slot} is covered and has no fate" for slot in passed if slot not in fates]
        found += [f"I5: {schedule}: {slot} was decided and is after the cursor" for slot in fates if slot > cursor]
        if ended and (waiting or len(passed) < len(slots)):
            found.append(f"I5: {schedule}: {len(waiting)} slots wait, {len(slots) - len(passed)} were not decided")
    return found


async def run_faults(sql: Sql) -> list[str]:
    """What does not hold between the records of runs and their executions."""
    found: list[str] = []
    found_executions = await sql("select id, key, error from semel_execution where key like 'activity-%'")
    executions = {id_: key for id_, key, error in found_executions if bytes(error or b"") != NOT_BEGUN}
    records = {execution: key for key, execution in await sql("select key, execution from semel_run")}
    found += _differences("an execution without a record", executions.items() - records.items())
    found += _differences("a record without an execution", records.items() - executions.items())
    return found


def _differences(what: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    return [f"I5: {what}: {key} ({execution})" for execution, key in sorted(pairs)]
