"""Debounce, batch, limits and cancellation: nothing is lost or runs twice, and nothing older replaces what is newer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.event_flow import (
    LONGEST_WAIT,
    MOST_BYTES,
    MOST_EVENTS,
    NOTHING,
    Batch,
    Cancelled,
    Debounce,
    FlowEvent,
    Outcome,
    Single,
    Singleton,
    Start,
    StartLimit,
    Starts,
    Window,
    admit_uncancelled,
    batch,
    cancel_runs,
    close_batch,
    close_debounce,
    debounce,
    end_singleton,
    limit_rate,
    take_singleton,
    throttle,
)

SECOND = 1_000_000


def event(name: str, at: int, happened: int | None = None, *, size: int = 0, arrival: int | None = None) -> FlowEvent:
    """An event that arrives at a second."""
    happened_at = None if happened is None else happened * SECOND
    return FlowEvent(name, at * SECOND, at if arrival is None else arrival, happened_at, size)


def through_storage(state: Any) -> Any:
    """What is read back from what was stored."""
    return msgspec.json.decode(msgspec.json.encode(state), type=type(state))


class Debounced:
    """A debounce with a clock: plays events and looks at it each second in between."""

    def __init__(self, policy: Debounce) -> None:
        self.policy = policy
        self.state = Window()
        self.starts: list[Start] = []
        self.dropped: list[str] = []

    def take(self, one: FlowEvent) -> Outcome:
        self.state, outcome = debounce(self.policy, through_storage(self.state), one, one.arrived_at)
        self.starts += outcome.starts
        if outcome.verdict == "dropped":
            self.dropped.append(one.event_id)
        return outcome

    def look(self, second: int) -> None:
        self.state, outcome = close_debounce(self.policy, through_storage(self.state), second * SECOND)
        self.starts += outcome.starts


def test_a_debounce_starts_once_after_a_quiet_time_with_all_events() -> None:
    flow = Debounced(Debounce(10 * SECOND))
    for second in (0, 4, 8):
        assert flow.take(event(f"e{second}", second)) == Outcome("held")
    flow.look(17)
    assert flow.starts == []
    flow.look(18)
    flow.look(19)
    assert flow.starts == [Start(("e0", "e4", "e8"), 18 * SECOND, "e0", "quiet")]


def test_an_older_event_goes_along_but_neither_leads_nor_puts_the_run_off() -> None:
    flow = Debounced(Debounce(10 * SECOND))
    flow.take(event("new", 0, happened=50))
    flow.take(event("old", 5, happened=40))
    flow.look(10)
    assert [one.events for one in flow.starts] == [("old", "new")]


def test_an_event_that_is_older_than_what_has_run_is_dropped_with_its_reason() -> None:
    flow = Debounced(Debounce(10 * SECOND))
    flow.take(event("new", 0, happened=50))
    flow.look(10)
    outcome = flow.take(event("old", 11, happened=40))
    assert outcome == Outcome("dropped", reason="it is older than event 'new', which has run")
    assert flow.take(event("same time", 12, happened=50)).verdict == "held"


def test_events_that_keep_coming_start_a_run_after_the_longest_wait() -> None:
    flow = Debounced(Debounce(10 * SECOND, 25 * SECOND))
    for second in range(0, 60, 5):
        flow.take(event(f"e{second}", second))
        flow.look(second + 4)
    assert [(one.reason, len(one.events)) for one in flow.starts] == [("max_wait", 5), ("max_wait", 5)]


def test_the_run_is_never_put_off_beyond_the_longest_wait() -> None:
    flow = Debounced(Debounce(20 * SECOND, 21 * SECOND))
    flow.take(event("a", 0))
    flow.take(event("b", 5))
    assert flow.state.due_at == 21 * SECOND


def test_a_debounce_of_twelve_hours_still_debounces() -> None:
    flow = Debounced(Debounce(12 * 3600 * SECOND))
    for hour in (0, 11, 22):
        flow.take(event(f"e{hour}", hour * 3600))
    flow.look(34 * 3600)
    assert [one.events for one in flow.starts] == [("e0", "e11", "e22")]


def test_without_a_longest_wait_a_window_is_closed_when_it_is_full() -> None:
    flow = Debounced(Debounce(10 * SECOND))
    for number in range(MOST_EVENTS):
        outcome = flow.take(event(f"e{number}", 0, arrival=number))
    assert outcome.verdict == "started"
    assert [(len(one.events), one.reason) for one in flow.starts] == [(MOST_EVENTS, "size")]
    assert len(msgspec.json.encode(flow.state)) < 200


@pytest.mark.parametrize("policy", [Debounce(10 * SECOND), Batch(10, 10 * SECOND)])
def test_a_window_holds_a_bounded_number_of_bytes(policy: Debounce | Batch) -> None:
    state, starts = Window(), []
    for number in range(3):
        one = event(f"e{number}", number, size=MOST_BYTES // 2)
        state, outcome = (
            debounce(policy, state, one, one.arrived_at)
            if isinstance(policy, Debounce)
            else batch(policy, state, one, one.arrived_at)
        )
        starts += outcome.starts
    assert [(one.events, one.reason) for one in starts] == [(("e0", "e1"), "bytes")]
    assert [one.event_id for one in state.events] == ["e2"]


def test_a_look_that_comes_late_does_not_mix_two_windows() -> None:
    flow = Debounced(Debounce(10 * SECOND))
    flow.take(event("a", 0))
    outcome = flow.take(event("b", 60))
    assert outcome.verdict == "held"
    assert [one.events for one in outcome.starts] == [("a",)]


def test_a_batch_starts_with_its_last_event_or_when_its_time_is_over() -> None:
    policy, state = Batch(3, 10 * SECOND), Window()
    for second in range(3):
        state, outcome = batch(policy, state, event(f"e{second}", second), second * SECOND)
    assert outcome == Outcome("started", (Start(("e0", "e1", "e2"), 2 * SECOND, "e0", "size"),))
    state, _ = batch(policy, state, event("e5", 5), 5 * SECOND)
    state, _ = batch(policy, state, event("e14", 14), 14 * SECOND)
    assert close_batch(state, 14 * SECOND) == (state, NOTHING)
    state, outcome = close_batch(state, 15 * SECOND)
    assert outcome.starts == (Start(("e5", "e14"), 15 * SECOND, "e5", "time"),)


@pytest.mark.parametrize("policy", [Debounce(10 * SECOND), Batch(5, 10 * SECOND)])
def test_an_append_that_was_committed_but_not_answered_still_starts_once(policy: Debounce | Batch) -> None:
    """The sender knows nothing of the first append and sends it again, or never does."""
    take: Any = debounce if isinstance(policy, Debounce) else batch
    state, _ = take(policy, Window(), event("a", 0), 0)
    stored = through_storage(state)
    again, outcome = take(policy, stored, event("a", 3), 3 * SECOND)
    assert (again, outcome) == (stored, Outcome("known"))
    for read in (stored, again):
        _, closed = close_batch(read, 10 * SECOND)
        assert [one.events for one in closed.starts] == [("a",)]


def test_a_clock_that_goes_back_closes_nothing_early_and_loses_nothing() -> None:
    flow = Debounced(Debounce(10 * SECOND, 30 * SECOND))
    flow.take(event("a", 100))
    flow.take(event("b", 40))
    assert flow.state.due_at == 110 * SECOND
    flow.look(110)
    assert [set(one.events) for one in flow.starts] == [{"a", "b"}]


def test_a_newer_event_on_a_clock_that_went_back_does_not_start_the_run_earlier() -> None:
    flow = Debounced(Debounce(10 * SECOND))
    flow.take(event("a", 100, happened=1))
    flow.take(event("b", 40, happened=2))
    assert flow.state.due_at == 110 * SECOND


def test_throttled_events_start_in_the_order_of_their_arrival_also_if_the_clock_goes_back() -> None:
    policy, state, starts = StartLimit(2, 10 * SECOND), Starts(), []
    for number, second in enumerate((100, 40, 41, 42, 120)):
        state, outcome = throttle(policy, state, event(f"e{number}", second), second * SECOND)
        starts.append(outcome.starts[0].at // SECOND)
    assert starts == [100, 100, 110, 110, 120]


def test_a_rate_limit_counts_one_period_back_and_no_further() -> None:
    policy, state, verdicts = StartLimit(2, 10 * SECOND), Starts(), []
    for second in (100, 40, 109, 110):
        state, outcome = limit_rate(policy, state, event(f"e{second}", second), second * SECOND)
        verdicts.append(outcome.verdict)
    assert verdicts == ["started", "started", "dropped", "started"]


histories = st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 60)), min_size=1, max_size=25)


@given(histories, st.integers(1, 6), st.none() | st.integers(7, 20))
def test_a_debounce_agrees_with_a_simple_model(
    history: list[tuple[int, int | None]], wait: int, most: int | None
) -> None:
    flow = Debounced(Debounce(wait * SECOND, None if most is None else most * SECOND))
    now, model, opened, due, last = 0, [], 0, None, None
    expected: list[tuple[str, ...]] = []
    dropped: list[str] = []

    def close(at: int) -> None:
        nonlocal model, due, last
        if due is not None and due <= at:
            model.sort(key=lambda one: one.order)
            expected.append(tuple(one.event_id for one in model))
            last = max([model[-1], *([last] if last else [])], key=lambda one: one.order)
            model, due = [], None

    for number, (gap, happened) in enumerate(history):
        for second in range(now, now + gap):
            flow.look(second)
            close(second)
        now += gap
        one = event(f"e{number}", now, happened, arrival=number)
        flow.take(one)
        close(now)
        if last is not None and one.order < last.order:
            dropped.append(one.event_id)
            continue
        if not model or one.order > max(other.order for other in model):
            opened = opened if model else now
            due = now + wait if most is None else min(now + wait, opened + most)
        model.append(one)
    for second in range(now, now + 100):
        flow.look(second)
        close(second)
    assert [one.events for one in flow.starts] == expected
    assert flow.dropped == dropped
    ran = [id for one in flow.starts for id in one.events]
    assert sorted([*ran, *dropped]) == sorted(f"e{n}" for n in range(len(history)))
    assert len({one.window for one in flow.starts}) == len(flow.starts)


@given(histories, st.integers(2, 5), st.integers(1, 12))
def test_every_event_is_in_one_batch(history: list[tuple[int, int | None]], most: int, wait: int) -> None:
    policy, state, now = Batch(most, wait * SECOND), Window(), 0
    starts: list[Start] = []
    for number, (gap, happened) in enumerate(history):
        now += gap
        state, outcome = batch(
            policy, through_storage(state), event(f"e{number}", now, happened, arrival=number), now * SECOND
        )
        starts += outcome.starts
    state, outcome = close_batch(state, (now + 100) * SECOND)
    starts += outcome.starts
    assert sorted(id for one in starts for id in one.events) == sorted(f"e{n}" for n in range(len(history)))
    assert all(len(one.events) <= most for one in starts)
    assert state.events == ()
    assert len({one.window for one in starts}) == len(starts)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 10))
def test_a_throttle_starts_all_in_order_and_never_too_many_in_any_period(
    gaps: list[int], limit: int, period: int
) -> None:
    policy, state, now, starts = StartLimit(limit, period * SECOND), Starts(), 0, []
    for number, gap in enumerate(gaps):
        now += gap
        state, outcome = throttle(policy, through_storage(state), event(f"e{number}", now), now * SECOND)
        [start] = outcome.starts
        assert start.events == (f"e{number}",)
        assert start.at >= now * SECOND
        starts.append(start.at)
    assert starts == sorted(starts)
    assert all(later - earlier >= policy.period for earlier, later in zip(starts, starts[limit:], strict=False))
    assert len(state.times) <= limit
    # None waits without need: it starts when it comes, with the one before it, or when the limit lets it.
    arrivals = [sum(gaps[: n + 1]) * SECOND for n in range(len(gaps))]
    for n, at in enumerate(starts):
        assert at in {
            arrivals[n],
            starts[n - 1] if n else None,
            starts[n - limit] + policy.period if n >= limit else None,
        }


def test_a_throttle_drops_only_what_would_wait_longer_than_a_year() -> None:
    policy, state = StartLimit(1, LONGEST_WAIT), Starts()
    verdicts = []
    for number in range(4):
        state, outcome = throttle(policy, state, event(f"e{number}", 0), 0)
        verdicts.append(outcome.verdict)
    assert verdicts == ["started", "started", "dropped", "dropped"]


@given(st.lists(st.integers(-2, 5), min_size=1, max_size=40), st.integers(1, 4), st.integers(1, 10))
def test_a_rate_limit_starts_what_fits_and_says_why_it_drops(gaps: list[int], limit: int, period: int) -> None:
    policy, state, now, started = StartLimit(limit, period * SECOND), Starts(), 100, []
    newest = now
    for number, gap in enumerate(gaps):
        now += gap
        newest = max(newest, now)
        state, outcome = limit_rate(policy, through_storage(state), event(f"e{number}", now), now * SECOND)
        within = [at for at in started if at > max(now, started[-1]) - period] if started else []
        assert outcome.verdict == ("started" if len(within) < limit else "dropped")
        if outcome.verdict == "started":
            started.append(max(now, started[-1]) if started else now)
        else:
            assert outcome.reason is not None
            assert outcome.reason.startswith(f"rate_limit: {limit} have started; the next may in ")
    assert len(state.times) <= limit


def test_a_singleton_skips_what_comes_while_a_run_is_going() -> None:
    policy = Singleton("skip")
    state, outcome = take_singleton(policy, Single(), event("a", 0), 0)
    assert outcome.starts == (Start(("a",), 0),)
    state, outcome = take_singleton(policy, through_storage(state), event("b", 1), SECOND)
    assert outcome == Outcome("dropped", reason="singleton: the run of event 'a' is still going")
    assert take_singleton(policy, state, event("a", 1), SECOND) == (state, Outcome("known"))
    state, outcome = end_singleton(state, "a", 2 * SECOND)
    assert outcome == NOTHING
    assert take_singleton(policy, state, event("c", 3), 3 * SECOND)[1].verdict == "started"


def test_a_singleton_cancels_for_a_newer_event_and_starts_it_when_the_run_has_ended() -> None:
    policy = Singleton("cancel")
    state, _ = take_singleton(policy, Single(), event("a", 0, happened=10), 0)
    state, outcome = take_singleton(policy, state, event("old", 1, happened=5), SECOND)
    assert outcome == Outcome("dropped", reason="singleton: event 'a' is newer")
    state, outcome = take_singleton(policy, state, event("b", 2, happened=20), 2 * SECOND)
    assert outcome == Outcome("held", cancels=("a",))
    state, outcome = take_singleton(policy, through_storage(state), event("c", 3, happened=30), 3 * SECOND)
    assert outcome == Outcome("held", superseded=("b",))
    assert end_singleton(state, "unknown", 4 * SECOND) == (state, NOTHING)
    state, outcome = end_singleton(state, "a", 4 * SECOND)
    assert outcome.starts == (Start(("c",), 4 * SECOND),)
    assert end_singleton(state, "a", 5 * SECOND) == (state, NOTHING)


def test_an_event_cancels_only_what_happened_before_it() -> None:
    active = (event("before", 0, happened=10), event("after", 1, happened=30))
    state, outcome = cancel_runs(Cancelled(), event("cancel", 2, happened=20), active)
    assert outcome.cancels == ("before",)
    assert admit_uncancelled(through_storage(state), event("late", 3, happened=15)) == Outcome(
        "dropped", reason="it was cancelled by event 'cancel'"
    )
    assert admit_uncancelled(state, event("again", 4, happened=25)) == NOTHING
    older, _ = cancel_runs(state, event("older", 5, happened=1), ())
    assert older == state
