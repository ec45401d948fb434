"""Take away one guard of the flow of events at a time: a named promise must notice."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from semel.contract import event_flow
from tests.contract import test_event_flow as promises

SOURCE = Path(str(event_flow.__file__)).read_text(encoding="utf-8")
KNOWN = (
    '    if any(held.event_id == event.event_id for held in state.events):\n        return state, Outcome("known")\n'
)
MUTANTS = [
    (
        "if state.last is not None and event.order < state.last.order:",
        "if False:",
        "an_event_that_is_older_than_what_has_run_is_dropped_with_its_reason",
    ),
    (
        "if due_at is None or newest is None or event.order > newest.order:",
        "if True:",
        "an_older_event_goes_along_but_neither_leads_nor_puts_the_run_off",
    ),
    (
        "due_at = min(due_at, opened_at + policy.max_wait)",
        "pass",
        "the_run_is_never_put_off_beyond_the_longest_wait",
    ),
    (
        "due_at = max(now + policy.wait, due_at or 0)",
        "due_at = now + policy.wait",
        "a_newer_event_on_a_clock_that_went_back_does_not_start_the_run_earlier",
    ),
    (
        "if state.due_at is None or state.due_at > now:",
        "if state.due_at is None or state.due_at >= now:",
        "a_debounce_starts_once_after_a_quiet_time_with_all_events",
    ),
    (
        "sorted(state.events, key=lambda event: event.order)",
        "list(state.events)",
        "an_older_event_goes_along_but_neither_leads_nor_puts_the_run_off",
    ),
    ("if len(state.events) < most:", "if True:", "without_a_longest_wait_a_window_is_closed_when_it_is_full"),
    (
        "at = max(now, times[-1]) if times else now",
        "at = now",
        "throttled_events_start_in_the_order_of_their_arrival_also_if_the_clock_goes_back",
    ),
    (
        "at = max(at, times[0] + policy.period)",
        "pass",
        "throttled_events_start_in_the_order_of_their_arrival_also_if_the_clock_goes_back",
    ),
    ("if at - now > LONGEST_WAIT:", "if False:", "a_throttle_drops_only_what_would_wait_longer_than_a_year"),
    (
        "now = max(now, state.times[-1]) if state.times else now",
        "pass",
        "a_rate_limit_counts_one_period_back_and_no_further",
    ),
    (
        "if at > now - policy.period)",
        "if at >= now - policy.period)",
        "a_rate_limit_counts_one_period_back_and_no_further",
    ),
    (
        "if event.order < newest.order:\n        return state",
        "if False:\n        return state",
        "a_singleton_cancels_for_a_newer_event_and_starts_it_when_the_run_has_ended",
    ),
    (
        "state.running.event_id != event_id",
        "False",
        "a_singleton_cancels_for_a_newer_event_and_starts_it_when_the_run_has_ended",
    ),
    (
        "for one in active if one.order < event.order",
        "for one in active",
        "an_event_cancels_only_what_happened_before_it",
    ),
    (
        "return Cancelled(event) if newer else state",
        "return Cancelled(event)",
        "an_event_cancels_only_what_happened_before_it",
    ),
    (
        "if state.by is not None and event.order < state.by.order:",
        "if False:",
        "an_event_cancels_only_what_happened_before_it",
    ),
]


USED = [name for name, value in vars(promises).items() if vars(event_flow).get(name) is value and value is not None]
"""What the promises have from the module."""


def swap(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the promises use another source of the module."""
    module = types.ModuleType("semel.contract.event_flow_mutant")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, str(event_flow.__file__), "exec"), vars(module))
    for name in USED:
        monkeypatch.setattr(promises, name, getattr(module, name))


@pytest.mark.parametrize(("guard", "without", "promise"), MUTANTS, ids=[guard[:40] for guard, _, _ in MUTANTS])
def test_a_missing_guard_is_noticed(guard: str, without: str, promise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert SOURCE.count(guard) == 1
    check = getattr(promises, f"test_{promise}")
    swap(SOURCE, monkeypatch)
    check()
    swap(SOURCE.replace(guard, without), monkeypatch)
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check()


@pytest.mark.parametrize("kind", ["debounce", "batch"])
def test_an_append_that_is_not_recognised_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, between, after = SOURCE.split(KNOWN)
    swap(f"{before}{between}{KNOWN}{after}" if kind == "debounce" else f"{before}{KNOWN}{between}{after}", monkeypatch)
    wait = 10 * promises.SECOND
    policy = promises.Debounce(wait) if kind == "debounce" else promises.Batch(5, wait)
    with pytest.raises(AssertionError):
        promises.test_an_append_that_was_committed_but_not_answered_still_starts_once(policy)
