"""Which slots run, wait or are skipped: an example of every rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from time import process_time
from typing import Any

import pytest

from semel.contract.first_slots import first_cursor
from semel.contract.slot_policy import Misfire, Overlap, Skipped, SkipReason, SlotPolicy, Stop
from semel.contract.slots import Pause, ScheduleState, SlotRun, Tick, due, edit
from semel.contract.timing import Timing
from semel.errors import InvalidValue

HOURLY = Timing(cron="0 * * * *")
DAILY = Timing(cron="0 9 * * *")


def at(text: str) -> datetime:
    """A time of 17 November, or a whole date and time."""
    return datetime.fromisoformat(text if "-" in text else f"2026-11-17T{text}").replace(tzinfo=UTC)


def tick(now: str, cursor: str = "08:00", timing: Timing = HOURLY, state: Any = None, **policy: Any) -> Tick:
    return due(timing, SlotPolicy(**policy), ScheduleState(cursor=at(cursor), **(state or {})), at(now))


def test_by_default_nothing_overlaps_and_nothing_is_caught_up() -> None:
    """The defaults of the source document (S1-16, S1-63); an outage runs nothing afterwards."""
    assert (SlotPolicy().overlap, SlotPolicy().misfire, SlotPolicy().max_catchup) == (Overlap.SKIP, Misfire.SKIP, 10)
    found = tick("12:45")
    assert (started(found), skipped(found)) == ([], [("late", "09:00", "12:00", 4)])


def clock(at: datetime) -> str:
    return at.strftime("%H:%M")


def started(found: Tick) -> list[str]:
    return [clock(run.slot) for run in found.start]


def waiting(found: Tick) -> list[str]:
    return [clock(run.slot) for run in found.line]


def skipped(found: Tick) -> list[tuple[str, str, str, int]]:
    return [(one.reason.value, clock(one.first), clock(one.last), one.count) for one in found.skipped]


def run(slot: str, since: str = "08:00", **options: Any) -> SlotRun:
    return SlotRun(at(slot), at(slot) - timedelta(hours=1), at(since), **options)


def after(found: Tick, active: int, **changes: Any) -> ScheduleState:
    """The state that somebody has stored who got this tick."""
    state = ScheduleState(
        cursor=found.cursor,
        active=active,
        line=found.line,
        catching_up=found.catching_up,
        window_from=found.window_from,
        window_slots=found.window_slots,
        pauses=found.pauses,
    )
    return replace(state, **changes)


class TestOnTime:
    def test_a_slot_runs_with_its_window(self) -> None:
        found = tick("09:00:05")
        assert found.start == (SlotRun(at("09:00"), at("08:00"), at("09:00:05")),)
        assert (found.cursor, found.line, found.skipped, found.stop, found.ahead) == (at("09:00"), (), (), None, None)
        assert found.look_again == at("10:00")

    def test_nothing_is_due_before(self) -> None:
        found = tick("08:59:59.9")
        assert (found.cursor, found.start, found.look_again) == (at("08:00"), (), at("09:00"))

    def test_a_covered_slot_never_fires_again(self) -> None:
        assert tick("09:30", cursor="09:00", grace="1d").start == ()

    def test_the_defaults_of_the_contract(self) -> None:
        policy = SlotPolicy()
        assert (policy.misfire, policy.overlap, policy.max_catchup) == (Misfire.SKIP, Overlap.SKIP, 10)

    def test_nothing_after_the_end(self) -> None:
        found = tick("12:30", timing=Timing(cron="0 * * * *", end_at=at("10:00")), grace="1d")
        assert (started(found), found.look_again) == (["09:00"], None)


class TestGrace:
    @pytest.mark.parametrize(("now", "runs"), [("09:30", True), ("09:30:01", False)])
    def test_by_default_half_of_the_time_to_the_next(self, now: str, runs: bool) -> None:
        assert bool(tick(now).start) is runs
        assert skipped(tick(now)) == ([] if runs else [("late", "09:00", "09:00", 1)])

    @pytest.mark.parametrize(("now", "runs"), [("10:00", True), ("10:00:01", False)])
    def test_and_at_most_an_hour(self, now: str, runs: bool) -> None:
        assert bool(tick(now, cursor="2026-11-16T09:00", timing=DAILY).start) is runs

    def test_of_the_last_slot_an_hour(self) -> None:
        timing = Timing(cron="*/10 * * * *", end_at=at("09:05"))
        assert started(tick("09:59", cursor="08:50", timing=timing)) == ["09:00"]

    @pytest.mark.parametrize(("now", "runs"), [("09:00:00.9", True), ("09:00:01.1", False)])
    def test_strict(self, now: str, runs: bool) -> None:
        assert bool(tick(now, grace="0").start) is runs

    def test_given(self) -> None:
        found = tick("11:10", grace="2h30m", overlap="allow_all", cursor="06:00")
        assert started(found) == ["09:00", "10:00", "11:00"]
        assert skipped(found) == [("late", "07:00", "08:00", 2)]

    def test_a_single_time_runs_however_late(self) -> None:
        timing = Timing(at=(at("09:00"), at("10:00"), at("11:00")))
        found = tick("2027-03-01T00:00", timing=timing)
        assert (started(found), waiting(found), found.skipped) == (["09:00"], ["10:00", "11:00"], ())
        assert started(tick("2027-03-01T00:00", cursor="10:00", timing=timing)) == ["11:00"]
        assert started(tick("2027-03-01T00:00", timing=timing, misfire="compress")) == ["11:00"]


class TestMisfire:
    def test_skip(self) -> None:
        found = tick("13:00:05")
        assert (started(found), skipped(found)) == (["13:00"], [("late", "09:00", "12:00", 4)])
        assert found.start[0].window_start == at("12:00")

    def test_slots_that_fired_while_the_engine_did_not_answer_say_so(self) -> None:
        found = tick("13:00:05", state={"down_since": at("10:00")})
        assert started(found) == ["13:00"]
        assert skipped(found) == [("late", "09:00", "09:00", 1), ("engine down", "10:00", "12:00", 3)]
        assert skipped(tick("12:45", state={"down_since": at("07:00")})) == [("engine down", "09:00", "12:00", 4)]
        assert skipped(tick("12:45", state={"down_since": at("12:40")})) == [("late", "09:00", "12:00", 4)]

    def test_an_outage_and_a_pause_have_each_their_slots(self) -> None:
        pauses = (Pause(at("10:30"), at("11:30")),)
        found = tick("13:45", state={"pauses": pauses, "down_since": at("09:30")})
        assert skipped(found) == [
            ("late", "09:00", "09:00", 1),
            ("engine down", "10:00", "10:00", 1),
            ("paused", "11:00", "11:00", 1),
            ("engine down", "12:00", "13:00", 2),
        ]

    def test_in_an_outage_a_slot_fires_when_its_jitter_is_over(self) -> None:
        timing = Timing(cron="0 * * * *", jitter="30m", schedule_id="s")
        fires = timing.fires_at(at("10:00"))
        for down_since, late in ((fires, 1), (fires + timedelta(microseconds=1), 2)):
            state = {"down_since": down_since}
            found = tick("12:59:59", timing=timing, state=state, grace="1s")
            assert [(one.reason.value, one.count) for one in found.skipped] == [
                ("late", late),
                ("engine down", 4 - late),
            ]

    def test_policies_that_run_what_is_late_do_so_after_an_outage(self) -> None:
        state = {"down_since": at("08:30")}
        for policy in ({"misfire": "catchup", "max_catchup": 2}, {"misfire": "compress"}):
            assert tick("12:45", state=state, **policy) == tick("12:45", **policy)

    def test_catch_up_runs_the_newest_oldest_first_one_after_the_other(self) -> None:
        found = tick("20:45", misfire="catchup", max_catchup=3)
        assert (started(found), waiting(found)) == (["18:00"], ["19:00", "20:00"])
        assert skipped(found) == [("over the catch-up limit", "09:00", "17:00", 9)]
        assert (found.cursor, found.catching_up) == (at("20:00"), True)
        assert [(r.window_start, r.slots, r.caught_up) for r in found.start] == [(at("17:00"), 1, True)]

    def test_what_is_on_time_comes_last_and_does_not_count(self) -> None:
        found = tick("20:00:05", misfire="catchup", max_catchup=2)
        assert (started(found), waiting(found)) == (["18:00"], ["19:00", "20:00"])
        assert [r.caught_up for r in found.line] == [True, False]

    @pytest.mark.parametrize("overlap", Overlap)
    def test_a_catch_up_goes_one_by_one_whatever_overlap_says(self, overlap: Overlap) -> None:
        policy = SlotPolicy(misfire=Misfire.CATCHUP, overlap=overlap)
        found = due(HOURLY, policy, ScheduleState(cursor=at("08:00")), at("11:45"))
        assert (started(found), waiting(found)) == (["09:00"], ["10:00", "11:00"])
        # Falls due meanwhile: it joins the end of the line, and nobody is stopped.
        found = due(HOURLY, policy, after(found, 1), at("12:00:05"))
        assert (started(found), waiting(found), found.stop) == ([], ["10:00", "11:00", "12:00"], None)
        for expected in ("10:00", "11:00", "12:00"):
            found = due(HOURLY, policy, after(found, 0), at("12:10"))
            assert started(found) == [expected]
        assert (found.line, found.catching_up) == ((), False)

    def test_also_while_the_last_of_them_runs(self) -> None:
        found = tick("09:45", misfire="catchup")
        assert (started(found), found.line, found.catching_up) == (["09:00"], (), True)
        found = due(HOURLY, SlotPolicy(misfire=Misfire.CATCHUP), after(found, 1), at("10:00:05"))
        assert waiting(found) == ["10:00"]
        found = due(HOURLY, SlotPolicy(misfire=Misfire.CATCHUP), after(found, 0), at("10:10"))
        assert (started(found), found.catching_up) == (["10:00"], False)
        # What runs now is no catch-up any more: overlap counts again.
        found = due(HOURLY, SlotPolicy(misfire=Misfire.CATCHUP), after(found, 1), at("11:00:05"))
        assert skipped(found) == [("overlap", "11:00", "11:00", 1)]

    def test_compress_covers_everything_since_the_cursor(self) -> None:
        found = tick("12:45", misfire="compress")
        assert found.start == (SlotRun(at("12:00"), at("08:00"), at("12:45"), slots=4, caught_up=True),)
        assert found.skipped == (Skipped(SkipReason.COMPRESSED, at("09:00"), at("11:00"), 3, into=at("12:00")),)
        # The next window begins where this one ended.
        found = due(HOURLY, SlotPolicy(misfire=Misfire.COMPRESS), after(found, 0), at("13:00:05"))
        assert found.start[0].window_start == at("12:00")

    def test_compress_takes_in_what_is_on_time(self) -> None:
        found = tick("12:00:05", misfire="compress")
        assert [(r.slot, r.window_start, r.slots) for r in found.start] == [(at("12:00"), at("08:00"), 4)]

    def test_compress_keeps_the_windows_of_slots_that_met_a_run(self) -> None:
        """Everything since the last run: what was skipped for overlap is part of the next window."""
        found = tick("09:00:05", misfire="compress", state={"active": 1})
        assert skipped(found) == [("overlap", "09:00", "09:00", 1)]
        found = due(HOURLY, SlotPolicy(misfire="compress"), after(found, 1), at("10:00:05"))
        assert skipped(found) == [("overlap", "10:00", "10:00", 1)]
        found = due(HOURLY, SlotPolicy(misfire="compress"), after(found, 0), at("11:00:05"))
        assert [(clock(one.window_start), clock(one.slot), one.slots) for one in found.start] == [("08:00", "11:00", 3)]
        assert (found.window_from, found.window_slots) == (None, 0)

    def test_compress_keeps_the_window_of_a_run_that_nobody_began(self) -> None:
        policy = SlotPolicy(misfire="compress", start_deadline="10m")
        state = ScheduleState(at("10:00"), window_from=at("09:00"), window_slots=1, unbegun=(run("09:00", "09:00"),))
        found = due(HOURLY, policy, state, at("10:10:05"))
        assert skipped(found) == [("deadline", "09:00", "09:00", 1)]
        assert (found.window_from, found.window_slots) == (at("08:00"), 2)
        found = due(HOURLY, policy, after(found, 0), at("11:00:05"))
        assert [(clock(one.window_start), clock(one.slot), one.slots) for one in found.start] == [("08:00", "11:00", 3)]

    def test_without_compress_a_slot_that_is_skipped_takes_its_window_with_it(self) -> None:
        found = tick("09:00:05", state={"active": 1})
        found = due(HOURLY, SlotPolicy(), after(found, 0), at("10:00:05"))
        assert [(clock(one.window_start), one.slots) for one in found.start] == [("09:00", 1)]

    def test_compress_takes_in_a_compressed_run_that_waits(self) -> None:
        found = tick("10:45", misfire="compress", state={"active": 1})
        assert (started(found), waiting(found)) == ([], ["10:00"])
        found = due(HOURLY, SlotPolicy(misfire=Misfire.COMPRESS), after(found, 1), at("12:45"))
        assert found.line == (SlotRun(at("12:00"), at("08:00"), at("12:45"), slots=4, caught_up=True),)
        assert skipped(found) == [("compressed", "10:00", "10:00", 1), ("compressed", "11:00", "11:00", 1)]

    @pytest.mark.parametrize("misfire", Misfire)
    def test_a_missed_year_of_minutes_is_one_range(self, misfire: Misfire) -> None:
        minutes = Timing(cron="* * * * *", timezone="Europe/Paris")
        begin = process_time()
        found = tick("09:00:45", cursor="2025-11-17T09:00", timing=minutes, misfire=misfire)
        assert process_time() - begin < 1
        (one,) = found.skipped
        assert one.count + len(found.start) + len(found.line) == 525_600
        assert one.first == at("2025-11-17T09:01")


class TestOverlap:
    def test_skip(self) -> None:
        found = tick("09:00:05", state={"active": 1})
        assert (started(found), waiting(found)) == ([], [])
        assert skipped(found) == [("overlap", "09:00", "09:00", 1)]

    def test_buffer_one_keeps_the_first(self) -> None:
        found = tick("09:00:05", overlap="buffer_one", state={"active": 1})
        assert (started(found), waiting(found)) == ([], ["09:00"])
        found = due(HOURLY, SlotPolicy(overlap=Overlap.BUFFER_ONE), after(found, 1), at("10:00:05"))
        assert (waiting(found), skipped(found)) == (["09:00"], [("overlap", "10:00", "10:00", 1)])
        found = due(HOURLY, SlotPolicy(overlap=Overlap.BUFFER_ONE), after(found, 0), at("10:20"))
        assert (started(found), waiting(found)) == (["09:00"], [])

    @pytest.mark.parametrize("overlap", Overlap)
    def test_a_slot_that_starts_does_not_wait_as_well(self, overlap: Overlap) -> None:
        found = tick("09:00:05", overlap=overlap)
        assert (started(found), waiting(found), skipped(found)) == (["09:00"], [], [])

    def test_buffer_all_has_a_bound(self) -> None:
        minutes = Timing(cron="* * * * *")
        found = tick("09:05:05", "09:00", minutes, overlap="buffer_all", grace="1h", max_buffer=2)
        assert (started(found), waiting(found)) == (["09:01"], ["09:02", "09:03"])
        assert skipped(found) == [("buffer full", "09:04", "09:05", 2)]

    def test_allow_all(self) -> None:
        found = tick("09:02:05", "09:00", Timing(cron="* * * * *"), {"active": 7}, overlap="allow_all", grace="1h")
        assert started(found) == ["09:01", "09:02"]

    def test_allow_all_starts_a_thousand_at_once_and_goes_on(self) -> None:
        seconds, policy = Timing(every="1s"), SlotPolicy(overlap=Overlap.ALLOW_ALL, grace="1d")
        state, slots = ScheduleState(cursor=at("09:00")), 0
        for _ in range(3):
            found = due(seconds, policy, state, at("09:40"))
            state, slots = after(found, state.active + len(found.start)), slots + len(found.start)
        assert (slots, found.cursor, found.look_again) == (2400, at("09:40"), at("09:40:01"))

    def test_cancel_other_waits_for_the_cancelled_run(self) -> None:
        found = tick("09:00:05", overlap="cancel_other", state={"active": 1})
        assert (started(found), waiting(found), found.stop) == ([], ["09:00"], Stop.CANCEL)
        # It does not end: the next slot takes the place.
        policy = SlotPolicy(overlap=Overlap.CANCEL_OTHER)
        found = due(HOURLY, policy, after(found, 1), at("10:00:05"))
        assert (waiting(found), found.stop) == (["10:00"], Stop.CANCEL)
        assert skipped(found) == [("overlap", "09:00", "09:00", 1)]
        found = due(HOURLY, policy, after(found, 0), at("10:01"))
        assert (started(found), found.stop) == (["10:00"], None)

    def test_terminate_other_starts_at_once(self) -> None:
        found = tick("09:00:05", overlap="terminate_other", state={"active": 1})
        assert (started(found), found.stop) == (["09:00"], Stop.TERMINATE)
        assert tick("09:00:05", overlap="terminate_other").stop is None

    @pytest.mark.parametrize("overlap", ["cancel_other", "terminate_other"])
    def test_of_several_at_once_only_the_newest_runs(self, overlap: str) -> None:
        found = tick("09:03:05", "09:00", Timing(cron="* * * * *"), overlap=overlap, grace="1h")
        assert (started(found), skipped(found)) == (["09:03"], [("overlap", "09:01", "09:02", 2)])


class TestPause:
    def test_nothing_is_decided_while_paused(self) -> None:
        found = tick("11:00:05", state={"paused_since": at("08:30"), "line": (run("08:00"),)})
        assert (found.start, waiting(found), found.cursor, found.look_again) == ((), ["08:00"], at("08:00"), None)

    def test_skip_never_runs_a_slot_of_a_pause(self) -> None:
        state = {"pauses": (Pause(at("08:30"), at("11:10")),)}
        found = tick("11:10", state=state)
        assert (started(found), skipped(found), found.pauses) == ([], [("paused", "09:00", "11:00", 3)], ())

    def test_a_pause_is_half_open(self) -> None:
        found = tick("11:00", state={"pauses": (Pause(at("09:00"), at("11:00")),)})
        assert (started(found), skipped(found)) == (["11:00"], [("paused", "09:00", "10:00", 2)])

    def test_late_before_paused_after(self) -> None:
        pauses = (Pause(at("10:10"), at("10:20")), Pause(at("10:30"), at("12:30")), Pause(at("13:10"), at("14:10")))
        found = tick("15:00:05", state={"pauses": pauses})
        assert skipped(found) == [
            ("late", "09:00", "10:00", 2),
            ("paused", "11:00", "12:00", 2),
            ("late", "13:00", "13:00", 1),
            ("paused", "14:00", "14:00", 1),
        ]
        assert started(found) == ["15:00"]

    def test_catch_up_and_compress_apply_on_resume(self) -> None:
        state = {"pauses": (Pause(at("08:30"), at("11:10")),)}
        found = tick("11:10", state=state, misfire="catchup", max_catchup=2)
        assert (started(found), waiting(found)) == (["10:00"], ["11:00"])
        assert skipped(found) == [("over the catch-up limit", "09:00", "09:00", 1)]
        found = tick("11:10", state=state, misfire="compress")
        assert [(r.slot, r.window_start, r.slots) for r in found.start] == [(at("11:00"), at("08:00"), 3)]


class TestNoSlots:
    def test_looking_for_excluded_ones_does_not_go_beyond_now(self) -> None:
        timing = Timing(cron="0 * * * *", exclude="2020-01-01")
        begin = process_time()
        for hour in range(9, 19):
            assert started(tick(f"{hour:02}:00:05", cursor=f"{hour - 1:02}:00", timing=timing)) == [f"{hour:02}:00"]
        assert process_time() - begin < 0.1

    def test_excluded_and_early_ones_leave_their_reason(self) -> None:
        timing = Timing(cron="0 * * * *", start_at=at("10:30"), exclude="* 12,13 * * *")
        found = tick("14:00:05", timing=timing)
        assert (started(found), skipped(found)) == (
            ["14:00"],
            [("late", "11:00", "11:00", 1), ("before start", "09:00", "10:00", 2), ("excluded", "12:00", "13:00", 2)],
        )
        # The window reaches back over what is excluded.
        assert found.start[0].window_start == at("11:00")
        assert tick("11:00:05", timing=timing).start[0].window_start == at("10:00")

    def test_a_new_schedule_begins_with_the_next_slot(self) -> None:
        assert first_cursor(HOURLY, at("08:20")) == at("08:00")
        assert first_cursor(Timing(cron="0 * * * *", start_at=at("2027-01-01T00:00")), at("08:20")) == at("08:00")
        assert first_cursor(Timing(every="1h", start_at=at("09:10")), at("08:20")) == at("08:20")
        assert first_cursor(Timing(every="1h", start_at=at("07:10")), at("08:20")) == at("08:10")
        # A single time that passed while the schedule was made still runs.
        timing = Timing(at=at("08:19"))
        assert started(due(timing, SlotPolicy(), ScheduleState(first_cursor(timing, at("08:20"))), at("08:20"))) == [
            "08:19"
        ]


class TestJitter:
    timing = Timing(every="1h", jitter="40m", schedule_id="digest")
    fires = timing.fires_at(at("09:00"))

    def test_a_slot_waits_for_its_jitter_and_is_not_lost(self) -> None:
        assert at("09:00") < self.fires < at("09:40")
        before = due(self.timing, SlotPolicy(), ScheduleState(at("08:00")), self.fires - timedelta(microseconds=1))
        assert (before.start, before.cursor, before.look_again) == ((), at("08:00"), self.fires)
        found = due(self.timing, SlotPolicy(), after(before, 0), self.fires)
        assert (started(found), found.look_again) == (["09:00"], self.timing.fires_at(at("10:00")))

    def test_it_is_late_by_when_it_fires(self) -> None:
        for late, runs in ((timedelta(minutes=4), True), (timedelta(minutes=6), False)):
            found = due(self.timing, SlotPolicy(grace="5m"), ScheduleState(at("08:00")), self.fires + late)
            assert bool(found.start) is runs

    @pytest.mark.parametrize("to", [Timing(cron="0 * * * *"), Timing(cron="30 12 * * *"), Timing(every="7m")])
    def test_an_edit_does_not_lose_it(self, to: Timing) -> None:
        moment = self.fires - timedelta(seconds=1)
        found = edit(self.timing, to, SlotPolicy(grace="1s"), ScheduleState(at("08:00")), moment)
        assert started(found) == ["09:00"]
        assert found.cursor == max(at("09:00"), to.newest_slot(moment) or at("09:00"))
        assert found.look_again == to.next_slot(moment)


class TestEdit:
    @pytest.mark.parametrize("misfire", Misfire)
    def test_a_passed_slot_of_the_new_timing_does_not_run(self, misfire: Misfire) -> None:
        policy = SlotPolicy(misfire=misfire)
        found = edit(DAILY, Timing(cron="0 12 * * *"), policy, ScheduleState(at("09:00")), at("12:20"))
        assert (found.start, found.line, found.cursor) == ((), (), at("12:00"))
        # The window still begins where the last one ended: windows tile.
        noon = Timing(cron="0 12 * * *")
        again = due(noon, policy, after(found, 0), at("12:30"))
        assert (again.start, again.window_from) == ((), at("09:00"))
        tomorrow = due(noon, policy, after(again, 0), at("2026-11-18T12:00:01"))
        assert tomorrow.start[0].window_start == at("09:00")
        assert tomorrow.window_from is None

    def test_the_same_slot_is_not_run_again(self) -> None:
        found = edit(DAILY, Timing(cron="0 9,21 * * *"), SlotPolicy(), ScheduleState(at("09:00")), at("09:20"))
        assert (found.start, found.cursor, found.look_again) == ((), at("09:00"), at("21:00"))

    def test_what_the_old_timing_has_open_is_decided(self) -> None:
        found = edit(HOURLY, DAILY, SlotPolicy(), ScheduleState(at("08:00")), at("10:00:05"))
        assert (started(found), skipped(found)) == (["10:00"], [("late", "09:00", "09:00", 1)])

    def test_in_a_pause_the_slots_since_it_began_stay_open(self) -> None:
        state = ScheduleState(at("08:00"), paused_since=at("09:30"))
        half = Timing(cron="30 * * * *")
        found = edit(HOURLY, half, SlotPolicy(misfire=Misfire.CATCHUP), state, at("11:50"))
        assert (found.start, waiting(found), found.cursor) == ((), ["09:00"], at("09:30"))
        found = edit(
            HOURLY, half, SlotPolicy(misfire=Misfire.CATCHUP), replace(state, paused_since=at("09:29")), at("11:50")
        )
        assert (found.start, waiting(found), found.cursor) == ((), ["09:00"], at("09:00"))

    def test_in_a_pause_missed_slots_from_before_it_are_skipped_where_they_would_be(self) -> None:
        state = ScheduleState(at("07:00"), paused_since=at("09:30"))
        found = edit(HOURLY, Timing(cron="45 * * * *"), SlotPolicy(), state, at("11:50"))
        assert (found.start, found.line) == ((), ())
        assert [(one.reason, one.first, one.last) for one in found.skipped] == [
            (SkipReason.LATE, at("08:00"), at("08:00")),
            (SkipReason.PAUSED, at("09:00"), at("09:00")),
        ]

    def test_with_the_same_timing_nothing_is_moved(self) -> None:
        state = ScheduleState(at("07:00"), paused_since=at("09:30"))
        found = edit(HOURLY, Timing(cron="0 * * * *"), SlotPolicy(), state, at("11:50"))
        assert (found.cursor, found.skipped) == (at("07:00"), ())


class TestClock:
    def test_a_cursor_in_the_future_is_reported_and_nothing_fires(self) -> None:
        state = {"line": (run("08:00"),)}
        found = tick("09:10", cursor="12:00", state=state)
        assert (found.ahead, found.start, waiting(found)) == (timedelta(hours=2, minutes=50), (), ["08:00"])
        assert (found.cursor, found.look_again) == (at("12:00"), at("12:00"))

    def test_naive_times_are_refused(self) -> None:
        with pytest.raises(InvalidValue, match=r"now=.*has no time zone"):
            due(HOURLY, SlotPolicy(), ScheduleState(at("08:00")), datetime(2026, 11, 17))  # noqa: DTZ001


class TestDeadline:
    def test_what_waits_too_long_is_dropped(self) -> None:
        line = (run("08:00", since="08:00"), run("09:00", since="09:00:05"))
        state = {"active": 1, "line": line}
        found = tick("09:20", "09:00", state=state, overlap="buffer_all", start_deadline="1h")
        assert (skipped(found), waiting(found)) == ([("deadline", "08:00", "08:00", 1)], ["09:00"])
        assert found.look_again == at("10:00")
        assert tick("09:20", "09:00", state=state, overlap="buffer_all", start_deadline="90m").look_again == at("09:30")


class TestAfterFinish:
    timing = Timing(every="1h", after="finish")

    def look(self, now: str, **state: Any) -> Tick:
        return due(self.timing, SlotPolicy(), ScheduleState(**{"cursor": at("08:00"), **state}), at(now))

    def test_the_first_slot_and_the_one_after_a_run(self) -> None:
        assert self.look("08:59").look_again == at("09:00")
        found = self.look("09:00:01")
        assert (started(found), found.look_again) == (["09:00"], None)
        assert self.look("11:00", cursor=at("09:00"), active=1).look_again is None
        ended = at("11:12:00.3")
        assert self.look("11:20", cursor=at("09:00"), last_end=ended).look_again == at("12:12:01")
        found = self.look("12:12:01", cursor=at("09:00"), last_end=ended)
        assert [(r.slot, r.window_start) for r in found.start] == [(at("12:12:01"), at("09:00"))]

    def test_a_missed_one_is_skipped_or_run_once(self) -> None:
        state = ScheduleState(at("08:00"), last_end=at("08:10"))
        found = due(self.timing, SlotPolicy(), state, at("12:50"))
        assert (started(found), skipped(found)) == ([], [("late", "09:10", "09:10", 1)])
        assert found.look_again == at("13:10")
        found = due(self.timing, SlotPolicy(misfire=Misfire.CATCHUP), state, at("12:50"))
        assert [(r.slot, r.window_start, r.slots) for r in found.start] == [(at("12:10"), at("08:00"), 1)]
        assert skipped(found) == []

    def test_one_slot_is_missed_also_where_the_engine_went_down_meanwhile(self) -> None:
        state = ScheduleState(at("08:00"), last_end=at("08:10"), down_since=at("11:00"))
        assert skipped(due(self.timing, SlotPolicy(), state, at("12:50"))) == [("late", "09:10", "09:10", 1)]

    def test_it_begins_at_start_at(self) -> None:
        timing = Timing(every="1h", after="finish", start_at=at("10:30"))
        assert due(timing, SlotPolicy(), ScheduleState(at("08:00")), at("09:00")).look_again == at("10:30")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"misfire": "later"}, "use one of 'skip', 'catchup', 'compress'"),
        ({"overlap": "queue"}, "use one of 'skip', 'buffer_one'"),
        ({"grace": "soon"}, "grace='soon'"),
        ({"max_catchup": 0}, "max_catchup=0: give a whole number from 1 to 1000"),
        ({"max_catchup": True}, "max_catchup=True"),
        ({"max_buffer": 1001}, "max_buffer=1001"),
        ({"start_deadline": "0"}, "start_deadline=0 would drop"),
    ],
)
def test_what_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        SlotPolicy(**options)
