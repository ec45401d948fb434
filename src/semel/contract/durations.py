"""Durations as people write them: "90s", "1h30m", "30d", "0", "forever", a timedelta, seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from semel.errors import InvalidValue

Duration = str | int | float | timedelta
"""What every duration option takes."""

FOREVER: Final = timedelta(days=36_500)
"""A hundred years: the longest duration there is, written "forever"."""

_UNITS: Final = {
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|sec|s|min|m|h|d|w)\s*")


def parse_duration(value: Duration, what: str = "duration") -> timedelta:
    """Read a duration. `what` names the option in the error."""
    seconds = _seconds(value, what)
    if not 0 <= seconds <= FOREVER.total_seconds():
        raise InvalidValue(f"{what}={value!r} is out of bounds: use a duration from 0 to 'forever'.")
    return timedelta(seconds=seconds)


def _seconds(value: object, what: str) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("0", "forever"):
            return 0.0 if text == "0" else FOREVER.total_seconds()
        total, at = 0.0, 0
        for part in _PART.finditer(text):
            if part.start() != at:
                break
            total += float(part[1]) * _UNITS[part[2]]
            at = part.end()
        if at == len(text) and at:
            return total
    raise InvalidValue(
        f"{what}={value!r} is not a duration. Write it like '90s', '1h30m', '30d', '0' or 'forever', "
        "or give a timedelta or a number of seconds."
    )


def format_duration(span: timedelta) -> str:
    """The shortest way to write a duration that `parse_duration` reads back."""
    if span >= FOREVER:
        return "forever"
    left = round(span.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"
