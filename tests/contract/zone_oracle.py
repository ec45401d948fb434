"""An independent answer to "when does this cron expression fire in this zone?": it looks at the clock every minute.

Expressions are numbers here, not text, and nothing of `semel` is used: a minute of the wall clock is counted from
1970-01-01, and what it shows at an instant is asked of `zoneinfo`.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

BEGIN, END = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) // 60 for year in (2000, 2041))
"""Minutes since 1970."""

_LOOK = 360


@dataclass(frozen=True)
class Expression:
    """A cron expression as a text for Semel, and as numbers for the oracle."""

    text: str
    minutes: range | list[int]
    hours: range | list[int]
    day: Callable[[date], bool] = field(default=lambda _: True)

    @cached_property
    def days(self) -> set[int]:
        """Days since 1970 that match."""
        first, last = date(1999, 12, 1).toordinal(), date(2041, 2, 1).toordinal()
        return {n - 719163 for n in range(first, last) if self.day(date.fromordinal(n))}

    @cached_property
    def times(self) -> set[int]:
        """Minutes of a day that match."""
        return {hour * 60 + minute for hour in self.hours for minute in self.minutes}

    @cached_property
    def walls(self) -> list[int]:
        """Every minute of the wall clock that matches."""
        return sorted(day * 1440 + time for day in self.days for time in self.times)

    @property
    def by_elapsed_time(self) -> bool:
        """Whether it matches every hour."""
        return len(self.hours) == 24

    def matches(self, wall: int) -> bool:
        """Whether this minute of the wall clock matches."""
        return wall % 1440 in self.times and wall // 1440 in self.days


def _is_last(day: date) -> bool:
    return day.day == calendar.monthrange(day.year, day.month)[1]


EXPRESSIONS = [
    Expression("30 2 * * *", [30], [2]),
    Expression("*/20 2 * * *", range(0, 60, 20), [2]),
    Expression("*/30 * * * *", range(0, 60, 30), range(24)),
    Expression("@daily", [0], [0]),
    Expression("7,37 23,0-3 * * *", [7, 37], [0, 1, 2, 3, 23]),
    Expression("0 */2 * * 0", [0], range(0, 24, 2), lambda day: day.isoweekday() == 7),
    Expression("59 1-2 L * *", [59], [1, 2], _is_last),
    Expression("15 3 29,31 1-4 MON", [15], [3], lambda d: d.month < 5 and (d.day in (29, 31) or d.weekday() == 0)),
]


def zones_alike() -> list[list[str]]:
    """All zones, those together whose clocks have changed alike since 2000. Most differ only before that."""
    files: dict[bytes, list[str]] = {}
    for name in sorted(available_timezones()):
        files.setdefault(_read_zone(name), []).append(name)
    alike: dict[tuple[object, ...], list[str]] = {}
    for names in files.values():
        key = (offset_at(ZoneInfo(names[0]), BEGIN), *offset_changes(names[0]))
        alike.setdefault(key, []).extend(names)
    return list(alike.values())


def _read_zone(name: str) -> bytes:
    for folder in TZPATH:
        if (path := Path(folder) / name).is_file():
            return path.read_bytes()
    return resources.files("tzdata.zoneinfo").joinpath(name).read_bytes()


@cache
def offset_changes(name: str) -> list[tuple[int, int, int]]:
    """The changes of a zone's offset: (a full hour of the clock of UTC by which it has come, offset before, after)."""
    zone = ZoneInfo(name)
    changes = []
    before = datetime.fromtimestamp(BEGIN * 60, zone).utcoffset()
    for minute in range(BEGIN, END, _LOOK):
        after = datetime.fromtimestamp(minute * 60, zone).utcoffset()
        if after != before:
            for hour in range(minute - _LOOK, minute + 1, 60):
                change = (hour, offset_at(zone, hour - 60), offset_at(zone, hour))
                if change[1] != change[2]:
                    changes.append(change)
            before = after
    return changes


def offset_at(zone: ZoneInfo, minute: int) -> int:
    """The offset from UTC in minutes."""
    offset = datetime.fromtimestamp(minute * 60, zone).utcoffset()
    assert offset is not None
    assert offset.seconds % 60 == 0
    return offset.days * 1440 + offset.seconds // 60


@dataclass(frozen=True)
class Stretch:
    """What the wall clock shows at each minute of [begin, begin + len(walls))."""

    begin: int
    walls: list[int]

    @property
    def end(self) -> int:
        """The minute after the last."""
        return self.begin + len(self.walls)

    def slots(self, expression: Expression, nonexistent: str = "shift", repeated: str = "first") -> list[int]:
        """The minutes at which it fires."""
        fires = []
        seen = {self.walls[0]}
        for index in range(1, len(self.walls)):
            wall = self.walls[index]
            hit = expression.matches(wall)
            if not expression.by_elapsed_time:
                if hit and repeated == "first":
                    hit = wall not in seen
                elif hit and repeated == "last":
                    hit = wall not in self.walls[index + 1 :]
                if nonexistent == "shift":
                    hit = hit or any(expression.matches(missed) for missed in range(self.walls[index - 1] + 1, wall))
            seen.add(wall)
            if hit:
                fires.append(self.begin + index)
        return fires


def stretch_around(zone: ZoneInfo, change: tuple[int, int, int]) -> Stretch:
    """The minutes around a change, enough of them to see each repeated time twice."""
    minute, before, after = change
    reach = abs(before - after) + 60
    begin = minute - 60 - reach
    return Stretch(begin, [m + offset_at(zone, m) for m in range(begin, minute + reach)])


def count_between(expression: Expression, begin: int, end: int, offset: int) -> int:
    """How often it fires in the minutes [begin, end) if the offset does not change in them."""
    return bisect_left(expression.walls, end + offset) - bisect_left(expression.walls, begin + offset)
