"""Rate limits: "100/sec", and the token bucket that keeps them.

A bucket holds at most `count` tokens and refills evenly, so "100/sec" lets up to 100 start at once
after a quiet second, and never more than 100 + 100 x t in any t seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from semel.errors import InvalidValue

_PER: Final = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
}
_FORM: Final = re.compile(r"\s*(\d+)\s*/\s*([a-z]+)\s*")


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` starts per `per` seconds."""

    count: int
    per: float

    def __str__(self) -> str:
        if not self.count:
            return "none"
        unit = {1.0: "sec", 60.0: "min", 3600.0: "hour", 86400.0: "day"}[self.per]
        return f"{self.count}/{unit}"


UNLIMITED: Final = Rate(0, 1.0)
"""No limit, said explicitly."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens left, as of `at` (seconds on the database's clock)."""

    tokens: float
    at: float


def parse_rate(value: str | Rate, what: str = "rate_limit", *, may_lift: bool = True) -> Rate:
    """Read "100/sec"; the unit is sec, min, hour or day. "none" lifts a limit set elsewhere, where it `may_lift`."""
    if isinstance(value, Rate):
        return value
    if value == "none":
        return UNLIMITED
    form = _FORM.fullmatch(value) if isinstance(value, str) else None
    if form is None or form[2] not in _PER or int(form[1]) < 1:
        none = " 'none' lifts a limit that was set before." if may_lift else ""
        raise InvalidValue(
            f"{what}={value!r} is not a rate. Write it like '100/sec', '10/min', '500/hour' or '1/day'.{none}"
        )
    return Rate(int(form[1]), _PER[form[2]])


def refill(bucket: Bucket | None, rate: Rate, now: float) -> Bucket:
    """The bucket as it stands now. A clock that went back refills nothing and loses nothing."""
    if bucket is None:
        return Bucket(float(rate.count), now)
    gained = max(0.0, now - bucket.at) * rate.count / rate.per
    return Bucket(min(float(rate.count), bucket.tokens + gained), max(now, bucket.at))


def take(bucket: Bucket, wanted: int) -> tuple[Bucket, int]:
    """Take up to `wanted` whole tokens."""
    got = max(0, min(wanted, int(bucket.tokens + 1e-9)))
    return Bucket(max(0.0, bucket.tokens - got), bucket.at), got


def wait_for_one(bucket: Bucket, rate: Rate) -> float:
    """Seconds until the next whole token."""
    return max(0.0, (1.0 - bucket.tokens) * rate.per / rate.count)
