"""How long a finished execution is kept, and how long its key is remembered.

    finished ────── retention ──────▶ result and input dropped
             ───────── dedup window ─────────▶ key forgotten

The window defaults to the retention and may be longer (keys outlive runs) or shorter (the key is
free again while the history is still there). Both are fixed when the execution is admitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from semel.contract.durations import Duration, parse_duration

TASK_RETENTION = timedelta(days=7)
WORKFLOW_RETENTION = timedelta(days=30)
LEAST_CLEANING = timedelta(seconds=5)
"""The shortest time between two looks for what is past its retention, unless less is asked for."""


@dataclass(frozen=True, slots=True)
class Retention:
    """`retention` for results, `window` for keys."""

    retention: timedelta
    window: timedelta

    def expires_at(self, finished_at: datetime) -> datetime:
        """When input, result and error are dropped."""
        return finished_at + self.retention

    def window_ends_at(self, finished_at: datetime) -> datetime:
        """From this instant on the key may run again. The window covers at least its length."""
        return finished_at + self.window


class RetentionAction(Enum):
    """What the cleaner does with a finished execution."""

    KEEP = "keep"
    STRIP = "strip"
    FORGET = "forget"


def keeping(*choices: tuple[Duration | None, Duration | None]) -> Retention:
    """The first given value wins, most specific first: (retention, dedup_window) of task, queue, app."""
    retention = next((parse_duration(r, "retention") for r, _ in choices if r is not None), TASK_RETENTION)
    window = next((parse_duration(w, "dedup_window") for _, w in choices if w is not None), retention)
    return Retention(retention, window)


def clean_every(most: timedelta, retentions: Iterable[timedelta | None]) -> timedelta:
    """How often to look for what is past its retention: at `most`, sooner where something is kept for less."""
    return min(most, max(LEAST_CLEANING, min((kept for kept in retentions if kept is not None), default=most)))


def retention_action(keep: Retention, finished_at: datetime, keyed: bool, now: datetime) -> RetentionAction:
    """Keep it, drop its payload but remember the key, or forget it altogether."""
    if now < keep.expires_at(finished_at):
        return RetentionAction.KEEP
    if keyed and now < keep.window_ends_at(finished_at):
        return RetentionAction.STRIP
    return RetentionAction.FORGET
