"""Timings in words."""

from __future__ import annotations

from datetime import timedelta

from semel.contract.durations import format_duration
from semel.contract.timing import Timing


def describe_timing(timing: Timing) -> str:
    """When a schedule fires, as a list shows it: `0 9 * * *`, `every 5m`, `at 2026-03-01T09:00:00+00:00`."""
    if timing.others:
        return " and ".join(map(describe_timing, timing.parts))
    if timing.cron:
        return ", ".join(timing.cron)
    if isinstance(timing.every, timedelta):
        after = " after each run" if timing.after == "finish" else ""
        return f"every {format_duration(timing.every)}{after}"
    times = timing.at if isinstance(timing.at, tuple) else (timing.at,)
    more = f" and {len(times) - 1} more" if len(times) > 1 else ""
    return f"at {times[0].isoformat()}{more}"
