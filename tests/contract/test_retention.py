"""How long results are kept and keys are remembered."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.retention import TASK_RETENTION, Retention, RetentionAction, keeping, retention_action
from semel.errors import InvalidValue

ENDED = datetime(2026, 3, 1, 9, tzinfo=UTC)
spans = st.integers(0, 400 * 86_400_000_000).map(lambda us: timedelta(microseconds=us))


@given(spans, spans, spans, st.booleans())
def test_fate_follows_the_two_clocks(retention: timedelta, window: timedelta, passed: timedelta, keyed: bool) -> None:
    keep = Retention(retention, window)
    verdict = retention_action(keep, ENDED, keyed, ENDED + passed)
    if passed < retention:
        assert verdict is RetentionAction.KEEP
    elif keyed and passed < window:
        assert verdict is RetentionAction.STRIP
    else:
        assert verdict is RetentionAction.FORGET


@given(spans, spans, spans, spans, st.booleans())
def test_time_only_moves_a_fate_towards_oblivion(
    retention: timedelta, window: timedelta, passed: timedelta, more: timedelta, keyed: bool
) -> None:
    keep = Retention(retention, window)
    order = list(RetentionAction)
    sooner = retention_action(keep, ENDED, keyed, ENDED + passed)
    later = retention_action(keep, ENDED, keyed, ENDED + passed + more)
    assert order.index(sooner) <= order.index(later)


@given(spans, spans)
def test_a_key_is_never_forgotten_inside_its_window(retention: timedelta, window: timedelta) -> None:
    keep = Retention(retention, window)
    last = max(keep.window_ends_at(ENDED) - timedelta(microseconds=1), ENDED)
    if window:
        assert retention_action(keep, ENDED, True, last) is not RetentionAction.FORGET
    assert keep.expires_at(ENDED) == ENDED + retention


def test_the_defaults() -> None:
    assert timedelta(days=7) == TASK_RETENTION
    assert keeping() == Retention(TASK_RETENTION, TASK_RETENTION)
    assert keeping((None, None), (None, None)) == keeping()


def test_the_first_given_value_wins() -> None:
    hour, day, week = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
    assert keeping(("1h", None), ("1d", "7d")) == Retention(hour, week)
    assert keeping((None, "1h"), ("1d", "7d")) == Retention(day, hour)
    assert keeping((None, None), ("1d", None)) == Retention(day, day)
    assert keeping(("0", None), ("1d", None)) == Retention(timedelta(0), timedelta(0))
    assert keeping(("1h", "0"), ("1d", "7d")) == Retention(hour, timedelta(0))


@pytest.mark.parametrize(("choice", "option"), [(("soon", None), "retention"), ((None, "soon"), "dedup_window")])
def test_a_bad_value_is_refused_by_the_name_of_its_option(choice: tuple[str, str], option: str) -> None:
    with pytest.raises(InvalidValue, match=f"{option}='soon'"):
        keeping(choice)
