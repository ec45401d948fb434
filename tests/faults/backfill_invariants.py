"""I5 for backfills, read from the tables: each slot has the runs that were asked for, and no other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from semel.engine.backfills import read_backfill
from tests.faults.schedule_invariants import Sql


class Expected(NamedTuple):
    """What must hold when all work is done."""

    slots: Sequence[int]
    generations: int
    """So many runs has each slot, one after the other."""
    phase: str
    """Of every backfill; one that is cancelled has not run all of its slots."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return self._asdict()


async def backfill_faults(sql: Sql, memo: Mapping[str, Any]) -> list[str]:
    """What does not hold for the backfills of an operation, if it has any."""
    if "backfill" not in memo:
        return []
    expected = Expected(**memo["backfill"])
    found: list[str] = []
    runs: dict[int, list[int]] = defaultdict(list)
    for slot, generation in await sql("select slot, generation from semel_run order by slot, generation"):
        runs[slot].append(generation)
    wanted = list(range(expected.generations))
    found += [
        f"I5: slot {slot} has the runs {runs[slot]}, and should have {wanted}"
        for slot in expected.slots
        if runs[slot] != wanted and (expected.phase == "completed" or runs[slot])
    ]
    found += [f"I5: {slot} is no slot of the backfill" for slot in runs.keys() - set(expected.slots)]
    for id_, phase, state in await sql("select id, phase, state from semel_backfill"):
        counts = read_backfill(bytes(state))
        if phase != expected.phase or counts.active or counts.started != counts.completed + counts.failed:
            found.append(f"I5: backfill {id_} is {phase}, and counts {counts}")
    started = sum(read_backfill(bytes(state)).started for (state,) in await sql("select state from semel_backfill"))
    if started != sum(map(len, runs.values())):
        found.append(f"I5: backfills count {started} runs, and there are {sum(map(len, runs.values()))}")
    return found
