"""Which slots of the past a backfill runs: an example of every rule, and properties of all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.backfill import (
    MOST_SLOTS,
    BackfillPlan,
    CoveringRun,
    PlannedSlot,
    RecordedRun,
    Rerun,
    SkippedRange,
    SlotFate,
    SlotRecords,
    check_range,
    count_slots,
    plan_slots,
    take_slots,
    window_start,
)
from semel.contract.lifecycle import Status
from semel.contract.slot_policy import SkipReason
from semel.contract.slots import SlotRun
from semel.contract.timing import Timing
from semel.errors import InvalidValue

HOUR = timedelta(hours=1)
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
SLOTS = [BEGIN + number * HOUR for number in range(10)]
HOURLY = Timing(cron="0 * * * *")
LONG_AGO = BEGIN - timedelta(days=365)


def records(**options: Any) -> SlotRecords:
    """A schedule that is older than all slots, has decided about all of them, and forgot nothing."""
    known: dict[str, Any] = {
        "runs": {},
        "covering": (),
        "skipped": (),
        "waiting": (),
        "created_at": LONG_AGO,
        "decided_until": SLOTS[-1],
        "known_since": LONG_AGO,
    }
    return SlotRecords(**{**known, **options})


def plan(rerun: str = "missing", force: bool = False, slots: list[datetime] = SLOTS[:1], **options: Any) -> PlannedSlot:
    return plan_slots(slots, records(**options), Rerun(rerun), force)[0]


RAN = {status: {"runs": {SLOTS[0]: RecordedRun(2, status)}} for status in (*Status, None)}
SKIPPED = {"skipped": (SkippedRange(SLOTS[0], SLOTS[3], SkipReason.LATE),)}
FORGOTTEN = {"known_since": SLOTS[5]}


@pytest.mark.parametrize(
    ("what", "fate", "runs"),
    [
        ({}, "missing", {"missing", "failed", "all"}),
        (SKIPPED, "skipped", {"missing", "failed", "all"}),
        (RAN[Status.FAILED], "failed", {"failed", "all"}),
        (RAN[Status.CANCELLED], "failed", {"failed", "all"}),
        (RAN[Status.TIMED_OUT], "failed", {"failed", "all"}),
        (RAN[Status.COMPLETED], "done", {"all"}),
        (RAN[Status.RUNNING], "running", set()),
        (RAN[Status.PENDING], "running", set()),
        (RAN[Status.WAITING], "running", set()),
        (RAN[None], "unknown", set()),
        (FORGOTTEN, "unknown", set()),
    ],
)
def test_what_became_of_a_slot_says_whether_it_runs(what: Any, fate: str, runs: set[str]) -> None:
    for rerun in Rerun:
        found = plan(rerun, **what)
        assert (found.fate, found.runs) == (fate, rerun in runs), rerun


def test_what_is_unknown_runs_when_it_is_forced() -> None:
    assert [plan(rerun, force=True, **FORGOTTEN).runs for rerun in Rerun] == [True, True, True]
    ran = [plan(rerun, force=True, **RAN[None]) for rerun in Rerun]
    assert [one.runs for one in ran] == [False, True, True], "it did run, whatever came of it"
    assert (ran[1].generation, plan(force=True, **FORGOTTEN).generation) == (3, 1), "never a generation that there was"


def test_a_slot_that_ran_gets_the_next_generation_and_one_that_did_not_the_first() -> None:
    assert [plan("all", **RAN[Status.COMPLETED]).generation, plan(**SKIPPED).generation, plan().generation] == [3, 0, 0]


def test_where_a_slot_was_skipped_and_ran_the_run_counts() -> None:
    assert plan(**SKIPPED, **RAN[Status.COMPLETED]).fate is SlotFate.DONE


@pytest.mark.parametrize(
    ("status", "fate"), [(Status.COMPLETED, "done"), (Status.FAILED, "failed"), (Status.RUNNING, "running")]
)
def test_a_compressed_slot_is_what_the_run_is_that_covers_it(status: Status, fate: str) -> None:
    covering = (CoveringRun(SLOTS[0], SLOTS[3], status),)
    skipped = (SkippedRange(SLOTS[1], SLOTS[2], SkipReason.COMPRESSED),)
    found = plan_slots(SLOTS[:5], records(covering=covering, skipped=skipped), Rerun.FAILED, False)
    assert [one.fate for one in found] == ["missing", fate, fate, fate, "missing"]
    assert {one.generation for one in found} == {0}, "alone it has never run"


def test_a_compressed_slot_whose_run_never_came_is_skipped() -> None:
    assert plan(skipped=(SkippedRange(SLOTS[0], SLOTS[0], SkipReason.COMPRESSED),)).reason is SkipReason.COMPRESSED


def test_slots_that_wait_in_the_line_are_running() -> None:
    one = SlotRun(SLOTS[1], SLOTS[0], SLOTS[1])
    several = SlotRun(SLOTS[5], SLOTS[2], SLOTS[5], slots=3, caught_up=True)
    found = plan_slots(SLOTS[:7], records(waiting=(one, several)), Rerun.ALL, False)
    assert [str(slot.fate)[0] for slot in found] == ["m", "r", "m", "r", "r", "r", "m"]


def test_times_that_were_no_slots_are_no_reason() -> None:
    for reason in (SkipReason.EXCLUDED, SkipReason.BEFORE_START):
        assert plan(skipped=(SkippedRange(SLOTS[0], SLOTS[3], reason),)).fate is SlotFate.MISSING


def test_slots_from_before_the_schedule_and_undecided_ones_are_missing() -> None:
    known = {"created_at": SLOTS[2], "decided_until": SLOTS[6], "known_since": SLOTS[5]}
    found = plan_slots(SLOTS[:9], records(**known), Rerun.MISSING, False)
    assert "".join(str(one.fate)[0] for one in found) == "mmmuummmm"


@given(
    st.lists(st.sampled_from([*Status, None, "skipped", "nothing"]), min_size=10, max_size=10),
    st.sampled_from(Rerun),
    st.booleans(),
)
def test_every_slot_is_listed_once_in_order_and_more_never_runs_less(
    fates: list[Any], rerun: Rerun, force: bool
) -> None:
    runs = {slot: RecordedRun(0, fate) for slot, fate in zip(SLOTS, fates, strict=True) if fate in (*Status, None)}
    ranges = tuple(
        SkippedRange(slot, slot, SkipReason.LATE) for slot, fate in zip(SLOTS, fates, strict=True) if fate == "skipped"
    )
    known = records(runs=runs, skipped=ranges)
    found = plan_slots(SLOTS, known, rerun, force)
    assert [one.slot for one in found] == SLOTS
    assert [one.fate is SlotFate.SKIPPED for one in found] == [fate == "skipped" for fate in fates]
    assert not any(one.runs for one in found if one.fate is SlotFate.RUNNING)
    assert all(one.generation == (one.slot in runs) for one in found)
    wider = plan_slots(SLOTS, known, Rerun.ALL, True)
    assert all(more.runs for one, more in zip(found, wider, strict=True) if one.runs)
    summary = BackfillPlan("x", SLOTS[0], SLOTS[-1], rerun, force, tuple(found))
    assert (sum(summary.counts.values()), summary.to_run) == (10, sum(one.runs for one in found))


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 40), st.sampled_from([0, 1, 500_000]))
def test_slots_are_taken_one_after_the_other_until_none_is_left(start: int, span: int, limit: int, micros: int) -> None:
    fraction = timedelta(microseconds=micros)
    begin = BEGIN + start * timedelta(minutes=7) + fraction
    end = begin + span * timedelta(minutes=7)
    timing = Timing(cron="*/10 * * * *")
    cursor, taken = begin - timedelta(seconds=1) if not micros else begin, []
    while some := take_slots(timing, cursor, end, limit):
        taken += some
        cursor = some[-1]
    ten = timedelta(minutes=10)
    assert taken == [at for at in (BEGIN + n * ten for n in range(800)) if begin <= at < end]
    assert len(taken) == count_slots(timing, begin, end)


def test_the_window_of_a_slot_alone_begins_at_the_slot_before() -> None:
    assert window_start(HOURLY, SLOTS[3]) == SLOTS[2]
    assert window_start(Timing(cron="0 * * * *", start_at=SLOTS[3]), SLOTS[3]) == SLOTS[2], "also before the start"
    assert window_start(Timing(every="1h", start_at=SLOTS[3]), SLOTS[3]) is None, "where an interval begins"


def test_ranges_that_cannot_be_filled_are_refused() -> None:
    now, day = BEGIN + timedelta(days=400), timedelta(days=1)
    assert check_range(HOURLY, BEGIN, now, now) == (BEGIN, now)
    for timing, start, end, words in [
        (HOURLY, BEGIN, now + day, "is in the future"),
        (HOURLY, BEGIN, BEGIN, "is not after start"),
        (HOURLY, BEGIN + timedelta(minutes=1), BEGIN + timedelta(minutes=9), "there is no slot"),
        (Timing(cron="* * * * *"), BEGIN, now, f"a backfill has at most {MOST_SLOTS}"),
        (Timing(every="1h", after="finish"), BEGIN, now, "depend on the end of the last run"),
        (HOURLY, BEGIN.replace(tzinfo=None), now, "has no time zone"),
    ]:
        with pytest.raises(InvalidValue, match=words):
            check_range(timing, start, end, now)
