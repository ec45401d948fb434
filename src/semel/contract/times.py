"""Microseconds since 1970 in the tables, datetime and timedelta everywhere else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(1024)
def micros(span: timedelta) -> int:
    """A duration as the tables hold it."""
    return span // _MICROSECOND


def instant(at: datetime) -> int:
    """A time as the tables hold it."""
    return (at - _EPOCH) // _MICROSECOND


def from_micros(at: int) -> datetime:
    """A time as the tables hold it, as a datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at)


def span(length: int) -> timedelta:
    """A duration as the tables hold it, as a timedelta."""
    return timedelta(microseconds=length)


def optional(at: int | None) -> datetime | None:
    """The same for a time that may not be there."""
    return None if at is None else from_micros(at)
