"""`semel demo schedules` draws what ran, and its last line is computed: when it is not true, the demo says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from semel.cli import demo_schedules
from semel.cli.demo_schedules import SLOTS, Policy, Simulation, sum_up
from semel.contract.runs import ScheduleRun, SkippedSlots, Why
from semel.contract.slot_policy import SkipReason
from tests.cli.shell import semel

OUTAGE = 6
"""Slots from the beginning of the outage to its end that nobody can start in time; the next one comes at its end."""


def run(at: int, slots: int = 1) -> ScheduleRun:
    slot = SLOTS[at]
    return ScheduleRun("x", f"activity-x:{at}", str(at), slot, Why.SLOT, 1, None, slots, slot)


def policy(name: str = "skip") -> Policy:
    """A policy under which slots 5 to 10 were skipped."""
    runs = [run(at) for at in range(len(SLOTS)) if at not in range(5, 11)]
    skipped = [SkippedSlots("x", SkipReason.LATE, SLOTS[5], SLOTS[10], 6)]
    return Policy(name, runs, skipped, [one.scheduled_for for one in runs])


def test_the_demo_draws_each_policy_and_counts() -> None:
    told = semel("demo", "schedules")
    assert told.code == 0, told
    lines = told.out.splitlines()
    skip, catchup, compress = (
        next(line for line in lines if line.startswith(f"  {name} ")) for name in ("skip", "catchup", "compress")
    )
    assert (skip.count("●"), skip.count("·"), skip.count("◆")) == (12, OUTAGE, 0)
    assert (catchup.count("●"), catchup.count("◆"), catchup.count("·")) == (11, OUTAGE + 1, 0)
    assert (compress.count("●"), compress.count("◌"), compress.count("◆7")) == (11, OUTAGE, 1)
    runs = "runs: skip 12, catchup 18, compress 12; 6 slots skipped, each with its reason"
    assert lines[-1] == f"once: 18 slots under 3 policies, {runs}"


def test_a_slot_that_is_lost_or_doubled_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = policy()
    assert fine.doubts == []
    assert sum_up({"skip": fine}).startswith("once: 18 slots under 1 policies, runs: skip 12; 6 slots skipped")
    lost = replace(fine, skipped=[])
    assert lost.doubts[0] == "skip: 1:00 is accounted for 0 times"
    doubled = replace(fine, runs=[*fine.runs, run(6)])
    assert "skip: 1:10 is accounted for 2 times" in doubled.doubts
    twice = replace(fine, ran=[*fine.ran, fine.ran[0]])
    assert twice.doubts == ["skip: 12 runs are on record, and 13 ran, or in disorder"]
    made_up = replace(fine, skipped=[*fine.skipped, replace(fine.skipped[0], first=SLOTS[-1] + timedelta(hours=1))])
    assert "6 slots are made up" in made_up.doubts[0]

    async def play(self: Simulation) -> dict[str, Policy]:
        return {"skip": lost}

    monkeypatch.setattr(demo_schedules.Simulation, "play", play)
    told = semel("demo", "schedules")
    assert told.code == 1
    assert told.out.splitlines()[-1].startswith("NOT once: skip: 1:00 is accounted for 0 times")
