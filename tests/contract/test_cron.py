"""Cron expressions mean what they mean in Vixie cron, and what would be read otherwise elsewhere is refused."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.contract.cron import EPOCH_ORDINAL, parse_cron
from semel.errors import InvalidValue

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def walls(text: str, after: str, count: int = 4, **options: Any) -> list[str]:
    """The first wall-clock times from a given one on."""
    begin = int((datetime.fromisoformat(after) - EPOCH).total_seconds())
    found = islice(parse_cron(text, **options).walls_from(begin), count)
    return [(EPOCH + timedelta(seconds=wall)).isoformat(" ") for wall in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 9 * * *", ["2026-11-17 09:00:00", "2026-11-18 09:00:00"]),
        ("*/20 9-10 * * *", ["2026-11-17 09:00:00", "2026-11-17 09:20:00"]),
        ("5/25 0 * * *", ["2026-11-17 00:05:00", "2026-11-17 00:30:00"]),
        ("0 0 * * MON-FRI", ["2026-11-17 00:00:00", "2026-11-18 00:00:00"]),
        ("0 0 * * sun", ["2026-11-22 00:00:00", "2026-11-29 00:00:00"]),
        ("0 0 * * 7", ["2026-11-22 00:00:00", "2026-11-29 00:00:00"]),
        ("0 0 1 jan,JUL *", ["2027-01-01 00:00:00", "2027-07-01 00:00:00"]),
        ("0 0 L * *", ["2026-11-30 00:00:00", "2026-12-31 00:00:00"]),
        ("0 0 LW * *", ["2026-11-30 00:00:00", "2026-12-31 00:00:00"]),
        ("0 0 LW 1 *", ["2027-01-29 00:00:00", "2028-01-31 00:00:00"]),
        ("0 0 * * 5#2", ["2026-12-11 00:00:00", "2027-01-08 00:00:00"]),
        ("0 0 * * 5L", ["2026-11-27 00:00:00", "2026-12-25 00:00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        # Both day fields given: either. One of them begins with a star: both.
        ("0 0 1 * FRI", ["2026-11-20 00:00:00", "2026-11-27 00:00:00", "2026-12-01 00:00:00"]),
        ("0 0 */2 * FRI", ["2026-11-27 00:00:00", "2026-12-11 00:00:00"]),
        ("@hourly", ["2026-11-17 00:00:00", "2026-11-17 01:00:00"]),
        ("@Daily", ["2026-11-17 00:00:00", "2026-11-18 00:00:00"]),
        ("@midnight", ["2026-11-17 00:00:00", "2026-11-18 00:00:00"]),
        ("@weekly", ["2026-11-22 00:00:00", "2026-11-29 00:00:00"]),
        ("@monthly", ["2026-12-01 00:00:00", "2027-01-01 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00", "2028-01-01 00:00:00"]),
    ],
)
def test_what_is_supported(text: str, expected: list[str]) -> None:
    assert walls(text, "2026-11-17", len(expected)) == expected


def test_seconds_come_first_and_only_when_asked_for() -> None:
    assert walls("*/30 0 9 * * *", "2026-11-17", 3, seconds=True) == [
        "2026-11-17 09:00:00",
        "2026-11-17 09:00:30",
        "2026-11-18 09:00:00",
    ]
    assert walls("@daily", "2026-11-17", 1, seconds=True) == ["2026-11-17 00:00:00"]
    with pytest.raises(InvalidValue, match=r"has six fields.*seconds=True"):
        parse_cron("*/30 0 9 * * *")
    with pytest.raises(InvalidValue, match="has five fields, but with seconds=True there are six"):
        parse_cron("0 9 * * *", seconds=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "minute field '60' cannot be read"),
        ("* 24 * * *", "hour field '24' cannot be read"),
        ("* * 0 * *", "day-of-month field '0' cannot be read"),
        ("* * * 13 *", "month field '13' cannot be read"),
        ("* * * * 8", "day-of-week field '8' cannot be read"),
        ("*/0 * * * *", "minute field"),
        ("5-1 * * * *", "minute field"),
        ("0 0 * * FRI-SUN", "day-of-week field 'FRI-SUN'"),
        ("* * * * tuesday", "day-of-week field"),
        ("0 0 15W * *", r"W \(the nearest weekday\)"),
        ("0 0 1,15w * *", r"W \(the nearest weekday\)"),
        ("0 0 ? * MON", r"'\?'.*Write '\*'"),
        ("0 0 L/2 * *", "a step in its day-of-month field cannot follow L"),
        ("0 0 L-3 * *", "day-of-month field 'L-3'"),
        ("0 0 * * 5#6", "day-of-week field"),
        ("*/90 * * * *", "a step of 90.*every='90m'"),
        ("0 9 * * ٣", "ASCII"),
        ("0 9 * * *\u00a0", "ASCII"),
        ("@reboot", "does not belong to a machine"),
        ("@every 5m", "has 2 fields"),
        ("@fortnightly", "is not known. There are @hourly, @daily"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("0 0 */31 * 1#2", "never fires"),
        (5, "is not a cron expression: give a text"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        parse_cron(text)


@pytest.mark.parametrize("text", ["0 0 29 2 *", "0 0 * 2 1#5", "0 0 30 2 MON", "0 0 29 2 */7"])
def test_what_fires_rarely_is_not_refused(text: str) -> None:
    assert len(walls(text, "2072-03-01", 1)) == 1


def test_whether_the_hour_field_matches_every_hour() -> None:
    assert [parse_cron(text).every_hour for text in ("*/5 * * * *", "0 */1 * * *", "0 0-23 * * *", "@hourly")] == [
        True
    ] * 4
    assert [parse_cron(text).every_hour for text in ("* 1-23 * * *", "0 */2 * * *", "@daily")] == [False] * 3


numbers = st.integers(0, 59).map(str)
minutes = st.one_of(st.just("*"), st.integers(1, 60).map("*/{}".format), numbers, st.just("10-50/7"))
hours = st.one_of(st.just("*"), st.integers(1, 24).map("*/{}".format), st.integers(0, 23).map(str), st.just("1-4,22"))
days = st.one_of(st.just("*"), st.just("*/9"), st.integers(1, 28).map(str), st.sampled_from(["L", "LW", "1-7"]))
months = st.one_of(st.just("*"), st.sampled_from(["2", "1-6/2", "FEB,DEC"]))
weekdays = st.one_of(st.just("*"), st.sampled_from(["MON", "1-5", "7", "5#2", "3L", "*/3"]))


@settings(max_examples=150, deadline=None)
@given(st.tuples(minutes, hours, days, months, weekdays).map(" ".join), st.integers(15_000, 25_000))
def test_days_forwards_and_backwards_are_those_that_match_one_by_one(text: str, day: int) -> None:
    try:
        cron = parse_cron(text)
    except InvalidValue as error:
        assert "never fires" in error.message  # noqa: PT017
        return
    matching = [one for one in range(day - 500, day + 500) if cron.matches_day(one)]
    later, earlier = [one for one in matching if one >= day], [one for one in matching if one <= day]
    if later:
        assert cron.next_day(day) == later[0]
    if earlier:
        assert cron.previous_day(day) == earlier[-1]
    assert [second for second in range(0, 86_400, 60) if cron.matches_time(second)] == list(cron.times)
    for one in matching[:3]:
        assert date.fromordinal(one + EPOCH_ORDINAL).month in range(1, 13)
        assert cron.matches(one * 86_400 + cron.times[0])
