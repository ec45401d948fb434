"""What is to be said of a slot that has not been decided about: when it is due, or why it is no slot."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from semel.contract.durations import format_duration
from semel.contract.occurrences import Outcome, explain_wall
from semel.contract.runs import ScheduleInfo
from semel.contract.timing import Timing

_OUT_OF_BOUNDS: Final = (Outcome.EXCLUDED, Outcome.BEFORE_START, Outcome.AFTER_END)


def describe_coming_slot(info: ScheduleInfo, timing: Timing, slot: datetime, now: datetime) -> str:
    """A slot of a schedule, in words; empty if it is in the past and nothing is known of it."""
    begin = f"Slot {_when(slot)} of schedule {info.id!r}"
    if slot in info.waiting:
        return f"{begin} waits for a run to end."
    if slot <= info.cursor:
        return ""
    if timing.after == "finish":
        return f"Schedule {info.id!r} counts from the end of each run: its slots are not known beforehand."
    if timing.newest_slot(slot) != slot:
        following = timing.next_slot(slot)
        then = "there is none after it" if following is None else f"the next one after it is {_when(following)}"
        return f"Schedule {info.id!r} has no slot at {_when(slot)}{_why_not(timing, slot)}; {then}."
    due = timing.fires_at(slot)
    if info.paused_at is not None:
        paused = f"the schedule is paused since {_when(info.paused_at)}, and while it is, no slot runs"
        return f"{begin} has not run: it is due at {_when(due)}, but {paused}."
    if due <= now:
        return f"{begin} has not run yet: it is due since {_when(due)}, and a worker decides about it when it looks."
    left = format_duration(timedelta(seconds=-((now - due) // timedelta(seconds=1))))
    return f"{begin} has not run yet: it is due at {_when(due)}, in {left}."


def _why_not(timing: Timing, slot: datetime) -> str:
    """Which bound or exclusion keeps a time from being a slot."""
    for one in timing.parts:
        wall = slot.astimezone(ZoneInfo(one.timezone)).replace(tzinfo=None)
        outcome = explain_wall(one, wall).outcome
        if outcome in _OUT_OF_BOUNDS:
            return f" ({outcome})"
    return ""


def _when(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
