"""Several timings of one schedule: slots that meet are one, and every policy counts for all of them together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from semel.contract.first_slots import first_cursor, first_line
from semel.contract.occurrences import Outcome, preview
from semel.contract.slot_policy import SlotPolicy
from semel.contract.slots import ScheduleState, due
from semel.contract.timing import Timing
from semel.errors import InvalidValue

DAY = datetime(2026, 11, 17, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-17T{text}").replace(tzinfo=UTC)


def clock(slots: list[datetime]) -> list[str]:
    return [slot.strftime("%H:%M") for slot in slots]


HOURS = Timing(cron="0 * * * *", others=(Timing(every="90m"),))
WITH_SINGLE = Timing(cron="0 * * * *", others=(Timing(at=(at("09:10"), at("10:00"), at("10:20"))),))


def test_slots_that_meet_are_one() -> None:
    assert clock([*islice(HOURS.slots(at("08:00")), 6)]) == ["09:00", "10:00", "10:30", "11:00", "12:00", "13:00"]
    assert HOURS.count(DAY, DAY + timedelta(days=1)) == 24 + 8
    assert clock(HOURS.newest(3, DAY, at("12:10"))) == ["10:30", "11:00", "12:00"]
    assert clock(HOURS.oldest(2, at("10:00"), at("12:00"))) == ["10:30", "11:00"]
    before, newest, following = HOURS.around(at("10:45"))
    assert (before, newest, following) == (at("10:00"), at("10:30"), at("11:00"))


def test_a_slot_has_the_least_jitter_and_fires_before_the_next() -> None:
    shy = Timing(cron="0 * * * *", jitter="50m", schedule_id="s", others=(Timing(every="90m"),))
    assert shy.fires_at(at("12:00")) == at("12:00"), "the other timing has no jitter"
    assert at("10:00") < shy.fires_at(at("10:00")) < at("10:30")
    assert Timing(cron="0 * * * *", jitter="50m", schedule_id="s").fires_at(at("11:00")) == shy.fires_at(at("11:00"))


def test_an_excluded_time_that_another_timing_has_is_a_slot() -> None:
    timing = Timing(cron="0 * * * *", exclude="* 12,13 * * *", others=(Timing(every="6h"),))
    assert clock(timing.oldest(9, at("10:30"), at("14:30"))) == ["11:00", "12:00", "14:00"]
    found = timing.excluded_span(at("10:30"), at("14:30"))
    assert found is not None
    assert (found.first, found.count) == (at("13:00"), 1)


def test_windows_tile_over_all_timings() -> None:
    found = due(HOURS, SlotPolicy(), ScheduleState(at("10:00")), at("10:30:05"))
    assert [(run.window_start, run.slot) for run in found.start] == [(at("10:00"), at("10:30"))]
    found = due(HOURS, SlotPolicy(misfire="compress"), ScheduleState(at("10:00")), at("12:40"))
    assert [(run.window_start, run.slot, run.slots) for run in found.start] == [(at("10:00"), at("12:00"), 3)]


def test_a_timing_that_begins_later_does_not_cut_a_window() -> None:
    timing = Timing(every="1h", start_at=at("00:00"), others=(Timing(cron="30 * * * *", start_at=at("20:00")),))
    found = due(timing, SlotPolicy(), ScheduleState(at("08:00")), at("09:00:05"))
    assert [(run.window_start, run.slot) for run in found.start] == [(at("08:00"), at("09:00"))]
    assert not found.skipped


@pytest.mark.parametrize("misfire", ["skip", "catchup"])
def test_a_single_time_runs_however_late_though_other_slots_are_skipped(misfire: str) -> None:
    policy = SlotPolicy(misfire=misfire, max_catchup=1)
    found = due(WITH_SINGLE, policy, ScheduleState(at("08:00")), at("13:50"))
    runs = [*found.start, *found.line]
    assert clock([run.slot for run in runs]) == [
        "09:10",
        "10:00",
        "10:20",
        *(["13:00"] if misfire == "catchup" else []),
    ]
    assert [(run.window_start, run.slot) for run in runs[:2]] == [
        (at("09:00"), at("09:10")),
        (at("09:10"), at("10:00")),
    ]
    assert sum(one.count for one in found.skipped) == (4 if misfire == "skip" else 3)
    assert len(found.start) == 1, "one after the other"


def test_a_single_time_that_has_passed_runs_when_the_schedule_is_created() -> None:
    now = at("10:30")
    assert first_cursor(WITH_SINGLE, now) == at("10:20")
    assert clock([run.slot for run in first_line(WITH_SINGLE, now)]) == ["09:10", "10:00", "10:20"]
    assert first_cursor(HOURS, at("10:45")) == at("10:30")
    assert first_line(HOURS, at("10:45")) == ()
    state = ScheduleState(first_cursor(WITH_SINGLE, now), line=first_line(WITH_SINGLE, now))
    found = due(WITH_SINGLE, SlotPolicy(), state, now)
    assert clock([run.slot for run in (*found.start, *found.line)]) == ["09:10", "10:00", "10:20"]
    assert not found.skipped


def test_what_comes_is_told_in_the_order_of_time_each_slot_once() -> None:
    paris = Timing(cron="0 9 * * *", timezone="Europe/Paris", others=(Timing(cron="0 8,9 * * *", end_at=at("09:30")),))
    found = [*islice(preview(paris, DAY), 3)]
    assert [(one.slots, one.timezone) for one in found] == [
        ((at("08:00"),), "Europe/Paris"),
        ((at("09:00"),), "UTC"),
        ((at("08:00") + timedelta(days=1),), "Europe/Paris"),
    ]
    ending = Timing(every="1h", end_at=at("02:00"), others=(Timing(cron="30 * * * *", end_at=at("01:00")),))
    assert [one.outcome for one in preview(ending, at("00:00"))] == [Outcome.FIRES, Outcome.FIRES, Outcome.AFTER_END]


def test_an_interval_after_each_run_has_no_other_timing() -> None:
    with pytest.raises(InvalidValue, match="after='finish'"):
        Timing(every="1h", after="finish", others=(Timing(cron="@daily"),))
    with pytest.raises(InvalidValue, match="none of their own"):
        Timing(cron="@daily", others=(HOURS,))
