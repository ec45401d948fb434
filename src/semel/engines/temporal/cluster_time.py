"""Times that a cluster tells, as Semel takes them: as they are, unless a test moves time."""

from __future__ import annotations

from collections.abc import Callable


def _as_told(at: int) -> int:
    return at


_reading: Callable[[int], int] = _as_told


def cluster_time(at: int) -> int:
    """A time that the cluster tells, in microseconds since 1970, as Semel takes it."""
    return _reading(at)


def read_times_with(reading: Callable[[int], int] | None) -> None:
    """Take times otherwise in this process, so that a test need not wait; None: as they are told again.

    A workflow that is replayed must find the same times: `reading` has to give the same for a time whenever it is asked
    about one that has passed.
    """
    global _reading
    _reading = reading or _as_told
