"""How long results are kept and keys are remembered."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.retention import TASK_RETENTION, Fate, Keeping, fate, keeping
from semel.errors import InvalidValue

ENDED = datetime(2026, 3, 1, 9, tzinfo=UTC)
spans = st.integers(0, 400 * 86_400_000_000).map(lambda us: timedelta(microseconds=us))


@given(spans, spans, spans, st.booleans())
def test_fate_follows_the_two_clocks(retention: timedelta, window: timedelta, passed: timedelta, keyed: bool) -> None:
    keep = Keeping(retention, window)
    verdict = fate(keep, ENDED, keyed, ENDED + passed)
    if passed < retention:
        assert verdict is Fate.KEEP
    elif keyed and passed < window:
        assert verdict is Fate.STRIP
    else:
        assert verdict is Fate.FORGET


@given(spans, spans, spans, spans, st.booleans())
def test_time_only_moves_a_fate_towards_oblivion(
    retention: timedelta, window: timedelta, passed: timedelta, more: timedelta, keyed: bool
) -> None:
    keep = Keeping(retention, window)
    order = list(Fate)
    sooner = fate(keep, ENDED, keyed, ENDED + passed)
    later = fate(keep, ENDED, keyed, ENDED + passed + more)
    assert order.index(sooner) <= order.index(later)


@given(spans, spans)
def test_a_key_is_never_forgotten_inside_its_window(retention: timedelta, window: timedelta) -> None:
    keep = Keeping(retention, window)
    last = max(keep.window_ends_at(ENDED) - timedelta(microseconds=1), ENDED)
    if window:
        assert fate(keep, ENDED, True, last) is not Fate.FORGET
    assert keep.expires_at(ENDED) == ENDED + retention


def test_the_defaults() -> None:
    assert timedelta(days=7) == TASK_RETENTION
    assert keeping() == Keeping(TASK_RETENTION, TASK_RETENTION)
    assert keeping((None, None), (None, None)) == keeping()


def test_the_first_given_value_wins() -> None:
    hour, day, week = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
    assert keeping(("1h", None), ("1d", "7d")) == Keeping(hour, week)
    assert keeping((None, "1h"), ("1d", "7d")) == Keeping(day, hour)
    assert keeping((None, None), ("1d", None)) == Keeping(day, day)
    assert keeping(("0", None), ("1d", None)) == Keeping(timedelta(0), timedelta(0))
    assert keeping(("1h", "0"), ("1d", "7d")) == Keeping(hour, timedelta(0))


@pytest.mark.parametrize(("choice", "option"), [(("soon", None), "retention"), ((None, "soon"), "dedup_window")])
def test_a_bad_value_is_refused_by_the_name_of_its_option(choice: tuple[str, str], option: str) -> None:
    with pytest.raises(InvalidValue, match=f"{option}='soon'"):
        keeping(choice)
