"""Durations as people write them."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.durations import FOREVER, format_duration, parse_duration
from semel.errors import InvalidValue

spans = st.integers(0, 36_500 * 86_400_000).map(lambda ms: timedelta(milliseconds=ms))


@given(spans)
def test_what_is_spelled_is_read_back(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == span


@given(spans)
def test_a_timedelta_and_its_seconds_are_the_same(span: timedelta) -> None:
    assert parse_duration(span) == span
    assert abs(parse_duration(span.total_seconds()) - span) <= timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0), ("90s", 90), ("90sec", 90), ("1h30m", 5400), ("30d", 2_592_000), ("2w", 1_209_600),
        ("250ms", 0.25), ("1.5h", 5400), (" 5 min ", 300), ("1D 2H", 93_600), (60, 60), (0.5, 0.5), (0, 0),
    ],
)  # fmt: skip
def test_the_forms_people_use(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


def test_forever_is_the_longest() -> None:
    assert parse_duration("forever") == FOREVER
    assert parse_duration(FOREVER) == FOREVER
    assert format_duration(FOREVER) == "forever"


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "5", "h", "5x", "-5s", "5s!", "s5", "5s 5", "1,5h", "inf", "nan", "1e3s", "ever", "forever 1s",
        None, True, False, [], object, b"5s", 1j,
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_the_name_of_its_option(bad: object) -> None:
    with pytest.raises(InvalidValue, match=r"retention=.* is not a duration"):
        parse_duration(bad, "retention")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "bad",
    [-1, -0.001, timedelta(seconds=-1), "40000d", "99999999999999999999w", float("inf"), float("nan"),
     pytest.param(10**400, id="10**400"), FOREVER + timedelta(microseconds=1)],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused_by_the_name_of_its_option(bad: object) -> None:
    with pytest.raises(InvalidValue, match=r"delay=.* out of bounds"):
        parse_duration(bad, "delay")  # type: ignore[arg-type]


@given(st.text(max_size=12) | st.from_regex(r"(\d{1,4}(ms|s|m|h|d|w|x)){1,3}", fullmatch=True))
def test_any_text_is_read_or_refused_and_never_anything_else(text: str) -> None:
    try:
        span = parse_duration(text)
    except InvalidValue:
        return
    assert timedelta(0) <= span <= FOREVER
