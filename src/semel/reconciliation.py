"""Compare what code and files declare with the schedules on record, and those with what runs. One shot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from semel.contract.reconciliation import Difference, DifferenceKind
from semel.contract.runs import Change, ChangeKind, ScheduleInfo
from semel.engine.declarations import Declared
from semel.engine.schedules import EngineSchedules, Owner

log = logging.getLogger("semel.schedules")
_KINDS: Final = {
    ChangeKind.CREATE: (DifferenceKind.MISSING, "declared, and not on record: it does not fire"),
    ChangeKind.CHANGE: (DifferenceKind.DRIFTED, "on record, and not as it is declared"),
    ChangeKind.FOREIGN: (DifferenceKind.FOREIGN, "not as it is declared: semel apply --take-over changes it"),
    ChangeKind.DELETE: (DifferenceKind.ORPHANED, "not declared any more"),
}
_ORPHANED: Final = "not declared any more, and goes on firing: --prune deletes it"


async def reconcile_schedules(
    engine: EngineSchedules,
    declared: Sequence[Declared],
    on_record: Sequence[ScheduleInfo],
    owners: Sequence[Owner],
    *,
    fix: bool,
    prune: bool,
) -> list[Difference]:
    """Everything that does not agree. With `fix` what can be repaired is, and logged."""
    gone = owners if prune else ()
    plan = await engine.apply(declared, prune=gone, take_over=False, write=False)
    running = await engine.reconcile(fix=fix)  # before anything is written, which would repair some of it unnoticed
    done: set[tuple[ChangeKind, str]] = set()
    if fix and any(change.kind in _KINDS and change.kind is not ChangeKind.FOREIGN for change in plan):
        written = await engine.apply(declared, prune=gone, take_over=False, write=True)
        done = {(change.kind, change.id) for change in written}
    found = [_difference(change, (change.kind, change.id) in done) for change in plan if change.kind in _KINDS]
    known = {one.id for one in declared} | {one.schedule for one in found}
    found += [
        Difference(DifferenceKind.ORPHANED, one.id, _ORPHANED, fixable=False)
        for one in on_record
        if one.owner in owners and one.id not in known
    ]
    return found + running


def _difference(change: Change, fixed: bool) -> Difference:
    kind, detail = _KINDS[change.kind]
    fixed = fixed and kind is not DifferenceKind.FOREIGN
    if fixed:
        log.warning("reconcile: schedule %s was %s: %s", change.id, kind, change.kind)
    return Difference(kind, change.id, detail, fixable=kind is not DifferenceKind.FOREIGN, fixed=fixed)
