"""Whatever happens, each slot runs at most once and has one fate: every misfire and overlap policy in virtual time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semel.contract.slot_policy import Misfire, Overlap, SkipReason, SlotPolicy
from semel.contract.slots import ScheduleState, due, edit
from semel.contract.timing import Timing
from tests.contract.slot_world import World, live

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
EVERY_PAIR = list(product(Misfire, Overlap))


def make_world(timing: Timing, policy: SlotPolicy, seed: int, longest_run: timedelta) -> World:
    return World(timing, policy, ScheduleState(cursor=BEGIN), Random(seed), longest_run)


@pytest.mark.slow
@pytest.mark.parametrize(("misfire", "overlap"), EVERY_PAIR)
def test_a_month_of_every_policy(misfire: Misfire, overlap: Overlap) -> None:
    timing = Timing(cron=("*/20 * * * *", "30 2 * * *"), timezone="Europe/Paris", exclude="2026-03-08")
    world = make_world(timing, SlotPolicy(misfire=misfire, overlap=overlap, max_buffer=5), 7, timedelta(minutes=30))
    live(world, BEGIN, timedelta(days=31), timedelta(minutes=15))
    assert len(world.started) > 300
    # Each policy has met what it is about.
    assert world.reasons[SkipReason.EXCLUDED] == 73
    expected = {Misfire.SKIP: SkipReason.LATE, Misfire.CATCHUP: SkipReason.CATCHUP_LIMIT}
    assert world.reasons[expected.get(misfire, SkipReason.COMPRESSED)] > 0
    if misfire is Misfire.SKIP:
        assert world.reasons[SkipReason.PAUSED] > 0
    if overlap is Overlap.ALLOW_ALL:
        assert world.most_active > 1


@pytest.mark.slow
@pytest.mark.parametrize(("misfire", "overlap"), EVERY_PAIR)
def test_a_year_of_every_policy(misfire: Misfire, overlap: Overlap) -> None:
    for seed, options in enumerate(({}, {"jitter": "50m", "schedule_id": "s"})):
        timing = Timing(cron="5 * * * *", timezone="America/New_York", **options)  # type: ignore[arg-type]
        policy = SlotPolicy(misfire=misfire, overlap=overlap, start_deadline="2h" if seed else None)
        world = make_world(timing, policy, seed, timedelta(hours=2))
        live(world, BEGIN, timedelta(days=183), timedelta(hours=2))
        assert len(world.started) > 500


policies = st.builds(
    SlotPolicy,
    misfire=st.sampled_from(Misfire),
    overlap=st.sampled_from(Overlap),
    grace=st.sampled_from([None, "0", "20m", "3h"]),
    max_catchup=st.integers(1, 4),
    max_buffer=st.integers(1, 4),
    start_deadline=st.sampled_from([None, "10m", "2h"]),
)
SINGLE_TIMES = Timing(at=tuple(BEGIN + timedelta(hours=h) for h in (1, 2, 3, 4, 20, 21, 22, 50)))
few_timings = st.sampled_from(
    [
        Timing(cron="*/15 * * * *", timezone="Europe/Paris"),
        Timing(cron=("0 */2 * * *", "30 2 * * *"), timezone="Europe/Paris"),
        Timing(every="13m", jitter="12m", schedule_id="s"),
        Timing(cron="*/10 8-20 * * *", jitter="3h", schedule_id="t", exclude="* 12 * * *"),
        Timing(every="1h", start_at=BEGIN + timedelta(hours=9), end_at=BEGIN + timedelta(days=2)),
        Timing(cron="*/30 * * * *", start_at=BEGIN + timedelta(hours=30)),
        SINGLE_TIMES,
        Timing(
            cron="0 */2 * * *",
            timezone="Europe/Paris",
            jitter="1h",
            schedule_id="u",
            others=(Timing(every="45m"), Timing(at=tuple(BEGIN + timedelta(hours=h) for h in (3, 30, 31)))),
        ),
    ]
)


@settings(max_examples=50, deadline=None)
@given(few_timings, policies, st.integers(0, 2**32), st.sampled_from([1, 20, 90]), st.sampled_from([20, 60, 300]))
@example(SINGLE_TIMES, SlotPolicy(misfire=Misfire.SKIP, max_catchup=1, max_buffer=1), 4271, 1, 60)  # four come at once
def test_each_slot_has_one_fate(timing: Timing, policy: SlotPolicy, seed: int, run: int, calm: int) -> None:
    world = make_world(timing, policy, seed, timedelta(minutes=run))
    live(world, BEGIN, timedelta(days=3), timedelta(minutes=calm))


@settings(max_examples=60, deadline=None)
@given(
    few_timings,
    st.sampled_from([Overlap.ALLOW_ALL, Overlap.BUFFER_ALL]),
    st.lists(st.integers(0, 48 * 3600), max_size=30),
)
def test_any_split_of_the_ticks_starts_the_same(timing: Timing, overlap: Overlap, moments: list[int]) -> None:
    """As long as no slot is late and every run has ended, it does not matter when somebody looks."""
    policy = SlotPolicy(overlap=overlap, grace="7d", max_buffer=1000)
    state, runs = ScheduleState(cursor=BEGIN), []
    end = BEGIN + timedelta(days=3)
    for now in [*(BEGIN + timedelta(seconds=moment) for moment in sorted(moments)), *[end] * 600]:
        found = due(timing, policy, state, now)
        runs += [(run.slot, run.window_start) for run in found.start]
        state = ScheduleState(cursor=found.cursor, line=found.line, catching_up=found.catching_up)
        if now == end and not found.line:
            break
    once = due(timing, policy, ScheduleState(cursor=BEGIN), end)
    assert runs == [(run.slot, run.window_start) for run in (*once.start, *once.line)]
    assert [slot for slot, _ in runs] == [
        slot for slot in timing.oldest(10_000, BEGIN, end) if timing.fires_at(slot) <= end
    ]


@settings(max_examples=150, deadline=None)
@given(few_timings, few_timings, st.sampled_from(Misfire), st.lists(st.integers(0, 48 * 3600), min_size=3, max_size=8))
def test_an_edit_at_any_moment_runs_no_slot_twice_and_none_after_the_fact(
    old: Timing, new: Timing, misfire: Misfire, moments: list[int]
) -> None:
    policy = SlotPolicy(misfire=misfire, overlap=Overlap.ALLOW_ALL)
    times = [BEGIN + timedelta(seconds=moment) for moment in sorted(moments)]
    edited = times[len(times) // 2]
    state, timing, runs = ScheduleState(cursor=BEGIN), old, []
    for now in times:
        if now == edited and timing is old:
            found, timing = edit(old, new, policy, state, now), new
        else:
            found = due(timing, policy, state, now)
        if timing is new and now > edited:
            joined = {run.slot for run in state.line}
            assert all(run.slot > edited for run in found.start if run.slot not in joined)
        runs += [*found.start]
        state = ScheduleState(
            cursor=found.cursor,
            line=found.line,
            catching_up=found.catching_up,
            window_from=found.window_from,
        )
    slots = [run.slot for run in runs]
    assert slots == sorted({*slots})
    # Every slot of the old timing that had come by the edit is decided, also one that waited for its jitter.
    newest = old.newest_slot(edited)
    assert newest is None or newest <= BEGIN or state.cursor >= newest
    for one, following in pairwise(runs):
        assert one.slot <= following.window_start
