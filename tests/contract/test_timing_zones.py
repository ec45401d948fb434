"""Every time zone and change of its clocks from 2000 to 2040: slots are what a look at the clock each minute gives.

Fault 18; leap days, and days of the month with days of the week, are in test_cron.py.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from itertools import pairwise, product
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from semel.contract.timing import Timing
from semel.contract.zones import year_periods
from tests.contract.zone_oracle import (
    BEGIN,
    END,
    EXPRESSIONS,
    Expression,
    count_between,
    offset_at,
    offset_changes,
    stretch_around,
    zones_alike,
)

SAMPLE: Final = [
    "Europe/Paris",
    "America/New_York",
    "America/St_Johns",  # clocks changed at one minute past midnight
    "America/Sao_Paulo",  # at midnight
    "Australia/Lord_Howe",  # by half an hour
    "Pacific/Apia",  # left out a day
    "Africa/Casablanca",  # four times in most years
    "Antarctica/Troll",  # by two hours
    "Asia/Tehran",
    "Asia/Kathmandu",
]
PARTS: Final = 6
"""Handed out one by one, none keeps one process busy at the end while the other has no more work."""


def instant(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)


@cache
def timing(expression: str, zone: str, **options: Any) -> Timing:
    return Timing(cron=expression, timezone=zone, **options)


def slots_between(found: Timing, begin: int, end: int) -> list[int]:
    minutes = []
    for slot in found.slots(instant(begin)):
        seconds = int(slot.timestamp())
        assert seconds % 60 == 0
        if seconds >= end * 60:
            break
        minutes.append(seconds // 60)
    return minutes


def check_changes(zone: str, expressions: list[Expression], policies: list[tuple[str, str]]) -> int:
    """Compare what fires around each change of the clocks."""
    fired = 0
    clock = ZoneInfo(zone)
    for change in offset_changes(zone):
        stretch = stretch_around(clock, change)
        for expression, (nonexistent, repeated) in product(expressions, policies):
            found = timing(expression.text, zone, nonexistent=nonexistent, repeated=repeated)
            expected = stretch.slots(expression, nonexistent, repeated)
            actual = slots_between(found, stretch.begin, stretch.end)
            assert actual == expected, (zone, expression.text, nonexistent, repeated, instant(change[0]))
            fired += len(expected)
    return fired


def check_between_changes(zone: str, expressions: list[Expression]) -> None:
    """Compare how often it fires while clocks do not change."""
    changes = offset_changes(zone)
    first_offset = offset_at(ZoneInfo(zone), BEGIN)
    edges = [(BEGIN, 0, first_offset), *changes, (END, 0, 0)]
    for (begin, _, offset), (end, _, _) in pairwise(edges):
        low, high = begin + 24 * 60, end - 28 * 60
        for expression in expressions if low < high else []:
            found = timing(expression.text, zone).count(instant(low - 1), instant(high - 1))
            assert found == count_between(expression, low, high, offset), (zone, expression.text, instant(begin))


@pytest.mark.slow
@pytest.mark.parametrize("zone", SAMPLE)
def test_a_sample_of_zones_under_every_policy(zone: str) -> None:
    policies = list(product(["shift", "skip"], ["first", "last", "both"]))
    fired = check_changes(zone, EXPRESSIONS[:5], policies)
    assert fired > 0 or zone == "Asia/Kathmandu"
    check_between_changes(zone, EXPRESSIONS[:1] + EXPRESSIONS[-2:])


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_zone(part: int) -> None:
    zones = zones_alike()
    assert sum(map(len, zones)) > 500
    for index, (zone, *others) in enumerate(zones[part::PARTS]):
        check_changes(zone, EXPRESSIONS, [("shift", "first")])
        check_between_changes(zone, [EXPRESSIONS[index % len(EXPRESSIONS)]])
        # All that a schedule knows of a zone are its periods.
        for year in range(2000, 2041):
            assert {year_periods(other, year) for other in others} <= {year_periods(zone, year)}, (zone, year)
        timing.cache_clear()
        year_periods.cache_clear()


def test_the_oracle_knows_the_examples() -> None:
    """The oracle itself gives what was decided for Paris."""
    paris = ZoneInfo("Europe/Paris")
    spring, autumn = (change for change in offset_changes("Europe/Paris") if instant(change[0]).year == 2026)
    at = {text: next(one for one in EXPRESSIONS if one.text == text) for text in ("30 2 * * *", "*/20 2 * * *")}

    def fires(change: tuple[int, int, int], text: str) -> list[str]:
        return [instant(m).isoformat() for m in stretch_around(paris, change).slots(at[text])]

    assert fires(spring, "30 2 * * *") == ["2026-03-29T01:00:00+00:00"]
    assert fires(spring, "*/20 2 * * *") == ["2026-03-29T01:00:00+00:00"]
    assert fires(autumn, "30 2 * * *") == ["2026-10-25T00:30:00+00:00"]
    assert len(fires(autumn, "*/20 2 * * *")) == 3
