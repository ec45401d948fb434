"""Time zones as periods of one offset from UTC, and what the wall clock does where one period meets the next.

Paris, 2026-10-25, as seconds of UTC:        ── +02:00 ──┤01:00Z├── +01:00 ──
                               wall clock:   02:00 … 03:00│02:00 … 03:00
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from semel.errors import InvalidValue

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 8999
_SAMPLE: Final = 86_400
"""Offsets are compared this often: no zone has changed twice within six days since 1970."""

_MARGIN: Final = 3 * 86_400
_MACHINE_FILES: Final = ("localtime", "posix/", "posixrules", "right/", "Factory")


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of one year, [begin, end) in seconds of UTC, during which a zone has one offset."""

    begin: int
    end: int
    offset: int
    first_from: int
    """From here on its wall-clock times come for the first time: before, they repeat those of the last period."""
    last_until: int
    """Up to here its wall-clock times come for the last time: from here on, the next period repeats them."""
    gap: tuple[int, int] | None
    """The wall-clock times [from, to) that were left out when it began."""


def load_zone(name: object, what: str = "timezone") -> ZoneInfo:
    """The zone of an IANA name. Raises InvalidValue for any other, also for files that depend on the machine."""
    if isinstance(name, str) and name and not name.startswith(_MACHINE_FILES):
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            pass
    close = get_close_matches(str(name), available_timezones(), 1, 0.6)
    advice = f"Did you mean {close[0]!r}?" if close else "Give one such as 'Europe/Paris', or 'UTC'."
    raise InvalidValue(f"{what}={name!r} is not an IANA time zone. {advice}")


@lru_cache(4096)
def year_periods(name: str, year: int) -> tuple[Period, ...]:
    """The periods of a zone in one year of UTC, without a hole between them."""
    zone = ZoneInfo(name)
    begin, end = _year_begin(year), _year_begin(year + 1)
    steps = [(begin - _MARGIN, _offset(zone, begin - _MARGIN))]
    for at in range(begin - _MARGIN, end + _MARGIN, _SAMPLE):
        _add_changes(zone, steps, at + _SAMPLE)
    periods = []
    for index, (start, offset) in enumerate(steps):
        stop, after = steps[index + 1] if index + 1 < len(steps) else (end + _MARGIN, offset)
        before = steps[index - 1][1] if index else offset
        if stop > begin and start < end:
            periods.append(
                Period(
                    begin=max(start, begin),
                    end=min(stop, end),
                    offset=offset,
                    first_from=start + max(0, before - offset),
                    last_until=stop - max(0, offset - after),
                    gap=(start + before, start + offset) if start >= begin and offset > before else None,
                )
            )
    return tuple(periods)


def offset_at(name: str, at: int) -> int:
    """The offset of a zone from UTC at an instant, in seconds."""
    return _offset(ZoneInfo(name), at)


def _add_changes(zone: ZoneInfo, steps: list[tuple[int, int]], until: int) -> None:
    """Append each change of the offset up to `until`, found by halving."""
    while (offset := steps[-1][1]) != _offset(zone, until):
        low, high = max(until - _SAMPLE, steps[-1][0]), until
        while high - low > 1:
            middle = (low + high) // 2
            if _offset(zone, middle) == offset:
                low = middle
            else:
                high = middle
        steps.append((high, _offset(zone, high)))


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    return 0 if offset is None else offset.days * 86_400 + offset.seconds


def _year_begin(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
