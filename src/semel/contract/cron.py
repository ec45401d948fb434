"""Cron expressions over wall-clock times: which days, and which seconds of a day. Nothing here knows a time zone.

    ┌───────────── minute (0-59)
    │ ┌─────────── hour (0-23)
    │ │ ┌───────── day of the month (1-31, L: the last one, LW: the last one from Monday to Friday)
    │ │ │ ┌─────── month (1-12 or JAN-DEC)
    │ │ │ │ ┌───── day of the week (0-7 or SUN-SAT; 5#2: the second Friday, 5L: the last one)
    * * * * *

With `seconds=True` there are six fields, and seconds come first. If both day fields are given, a day has to match
either of them; if one of them begins with `*`, it has to match both (as in Vixie cron).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from semel.errors import InvalidValue

DAY: Final = 86_400
EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
"""Days are counted from 1970-01-01, wall-clock times in seconds from its midnight."""

NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SPAN: Final = 50 * 366
"""Days to look ahead: 29 February on a given weekday is at most 40 years away."""

_LAST_DAY: Final = date(9000, 1, 1).toordinal() - EPOCH_ORDINAL
_FIELDS: Final = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_SIZES: Final = (60, 60, 24, 31, 12, 7)
_NEAREST_WEEKDAY: Final = re.compile(r"\d+W|W\d+")
_STEP_OF_LAST: Final = re.compile(r"[L#][^,]*/")
_KINDS_OF_YEARS: Final = (2001, 2002, 2003, 2005, 2009, 2010, 2006, 2000, 2004, 2008, 2012, 2016, 2020, 2024)
"""Seven common and seven leap years, each of which begins on another weekday: there are no other years."""


class Cron:
    """One parsed cron expression. `parse_cron` makes it, and makes each only once."""

    __slots__ = ("_fields", "_times", "every_hour", "text")

    def __init__(self, text: str, fields: CronSim) -> None:
        self.text = text
        self._fields = fields
        self.every_hour = len(fields.hours) == 24
        """Whether the hour field matches every hour: such an expression goes by elapsed time when clocks change."""
        self._times: array[int] | None = None

    def __repr__(self) -> str:
        return f"<Cron {self.text!r}>"

    @property
    def times(self) -> array[int]:
        """The seconds of a day at which it fires, ascending."""
        if self._times is None:
            fields = self._fields
            self._times = array(
                "i",
                [
                    hour * 3600 + minute * 60 + second
                    for hour in sorted(fields.hours)
                    for minute in sorted(fields.minutes)
                    for second in sorted(fields.seconds)
                ],
            )
        return self._times

    def matches_day(self, day: int) -> bool:
        """Whether it fires on this day."""
        when = date.fromordinal(day + EPOCH_ORDINAL)
        return when.month in self._fields.months and self._fields.match_day(when)

    def matches_time(self, second: int) -> bool:
        """Whether it fires at this second of a day that matches."""
        fields = self._fields
        return second // 3600 in fields.hours and second // 60 % 60 in fields.minutes and second % 60 in fields.seconds

    def matches(self, wall: int) -> bool:
        """Whether it fires at this wall-clock time."""
        return self.matches_time(wall % DAY) and self.matches_day(wall // DAY)

    def next_day(self, day: int) -> int | None:
        """The first day from this one on that matches; None if there is none within fifty years."""
        months, match_day = self._fields.months, self._fields.match_day
        ordinal = day + EPOCH_ORDINAL
        last = min(day + _SPAN, _LAST_DAY) + EPOCH_ORDINAL
        while ordinal <= last:
            when = date.fromordinal(ordinal)
            if when.month not in months:
                year, month = divmod(when.year * 12 + when.month, 12)
                ordinal = date(year, month + 1, 1).toordinal()
            elif match_day(when):
                return ordinal - EPOCH_ORDINAL
            else:
                ordinal += 1
        return None

    def previous_day(self, day: int) -> int | None:
        """The last day up to this one that matches; None if there is none within fifty years, or since 1970."""
        months, match_day = self._fields.months, self._fields.match_day
        ordinal = day + EPOCH_ORDINAL
        first = max(day - _SPAN, 0) + EPOCH_ORDINAL
        while ordinal >= first:
            when = date.fromordinal(ordinal)
            if when.month not in months:
                ordinal = when.replace(day=1).toordinal() - 1
            elif match_day(when):
                return ordinal - EPOCH_ORDINAL
            else:
                ordinal -= 1
        return None

    def walls_from(self, wall: int) -> Iterator[int]:
        """Every wall-clock time from this one on, for fifty years after each."""
        day = self.next_day(wall // DAY)
        while day is not None:
            begin = bisect_left(self.times, wall - day * DAY)
            yield from (day * DAY + second for second in self.times[begin:])
            day = self.next_day(day + 1)

    def fires_between(self, begin: int, end: int) -> bool:
        """Whether there is a wall-clock time in [begin, end) at which it fires."""
        return next(self.walls_from(begin), end) < end


@lru_cache(4096)
def parse_cron(text: str, *, seconds: bool = False, what: str = "cron", whole_minutes: bool = False) -> Cron:
    """Read an expression of five fields, or of six with `seconds`, or a nickname such as `@daily`.

    With `whole_minutes` five fields stand for each second of the minutes that they match. Raises InvalidValue for what
    cannot be read, for what other dialects read otherwise, and for what never fires.
    """
    fields = _split_fields(text, seconds, whole_minutes, what)
    if len(fields) == 5:
        fields = ["*" if whole_minutes else "0", *fields]
    _refuse_other_dialects(text, fields, what)
    try:
        parsed = CronSim(" ".join(fields), datetime(2000, 1, 1))  # noqa: DTZ001
    except CronSimError as error:
        name = str(error).removeprefix("Bad ")
        if name not in _FIELDS:
            raise InvalidValue(f"{what}={text!r} is not a cron expression: {error}.") from error
        if name == "day-of-month" and _is_readable(fields[3]):
            raise InvalidValue(_never(what, text)) from error
        raise InvalidValue(
            f"{what}={text!r}: its {name} field {fields[_FIELDS.index(name)]!r} cannot be read. "
            "Use numbers, names, ranges (1-5), lists (1,3) and steps (*/15) within the bounds of the field."
        ) from error
    cron = Cron(text, parsed)
    if not _fires_ever(cron):
        raise InvalidValue(_never(what, text))
    return cron


def _split_fields(text: object, seconds: bool, whole_minutes: bool, what: str) -> list[str]:
    if not isinstance(text, str):
        raise InvalidValue(f"{what}={text!r} is not a cron expression: give a text such as '0 9 * * *'.")
    if not text.isascii():
        raise InvalidValue(f"{what}={text!r}: a cron expression has ASCII characters only.")
    fields = text.split()
    if len(fields) == 1 and text.strip().startswith("@"):
        return _expand_nickname(text, what)
    if len(fields) == 6 and not seconds:
        raise InvalidValue(
            f"{what}={text!r} has six fields. Use five (minute, hour, day, month, weekday), "
            "or set seconds=True if the first one stands for seconds."
        )
    if len(fields) == 5 and seconds and not whole_minutes:
        raise InvalidValue(f"{what}={text!r} has five fields, but with seconds=True there are six, seconds first.")
    if len(fields) not in (5, 6):
        raise InvalidValue(
            f"{what}={text!r} has {len(fields)} fields. A cron expression has five: minute, hour, day, month, weekday."
        )
    return fields


def _expand_nickname(text: str, what: str) -> list[str]:
    name = text.strip().lower()
    if name == "@reboot":
        raise InvalidValue(
            f"{what}={text!r}: a schedule does not belong to a machine, so there is no start of one to run at. "
            "Call the function when your program starts, or use a time."
        )
    if name not in NICKNAMES:
        raise InvalidValue(f"{what}={text!r} is not known. There are {', '.join(NICKNAMES)}.")
    return NICKNAMES[name].split()


def _refuse_other_dialects(text: str, fields: list[str], what: str) -> None:
    """Refuse what cronsim would read in silence as something else, and name what people know from other crons."""
    for name, size, field in zip(_FIELDS, _SIZES, fields, strict=True):
        if "?" in field:
            raise InvalidValue(f"{what}={text!r}: '?' in its {name} field is of another dialect. Write '*'.")
        if _NEAREST_WEEKDAY.search(field.upper()):
            raise InvalidValue(
                f"{what}={text!r}: W (the nearest weekday) in its {name} field is not supported. "
                "LW, the last weekday of the month, is."
            )
        if name.startswith("day-of") and _STEP_OF_LAST.search(field.upper()):
            raise InvalidValue(f"{what}={text!r}: a step in its {name} field cannot follow L, LW or #.")
        for step in re.findall(r"/(\d+)", field):
            if int(step) > size:
                raise InvalidValue(
                    f"{what}={text!r}: a step of {step} in its {name} field is longer than the field ({size}), "
                    "so it would not mean what it says. For other intervals use every=, such as every='90m'."
                )


def _is_readable(field: str) -> bool:
    try:
        CronSim(f"0 0 {field} * *", datetime(2000, 1, 1))  # noqa: DTZ001
    except CronSimError:
        return False
    return True


def _fires_ever(cron: Cron) -> bool:
    """Whether any day of any year matches."""
    for year in _KINDS_OF_YEARS:
        first = date(year, 1, 1).toordinal() - EPOCH_ORDINAL
        if any(cron.matches_day(first + day) for day in range(366)):
            return True
    return False


def _never(what: str, text: str) -> str:
    return f"{what}={text!r} never fires: no month has such a day. Check its day-of-month, month and weekday."
