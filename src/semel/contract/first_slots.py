"""Where a schedule begins that is created now: what has passed is covered, but for single times."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from semel.contract.slots import SlotRun
from semel.contract.timing import Timing, to_utc

_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def first_cursor(timing: Timing, now: datetime) -> datetime:
    """The cursor of a schedule that is created now: slots that have passed do not fire, and windows begin at the last.

    Single times are the exception: one that has passed already still runs. Where there are other slots as well they are
    the `first_line`.
    """
    now = to_utc(now, "now")
    if timing.others and not timing.one_shot:
        covered = [first_cursor(one, now) for one in timing.parts if not one.one_shot and one.newest_slot(now)]
        return max([*covered, *timing.single_times(_EPOCH, now)], default=now)
    if timing.one_shot:
        first = timing.next_slot(_EPOCH)
        return now if first is None else min(now, first - _SECOND)
    if timing.after == "finish":
        return now
    anchor = (timing.anchor or timing.start_at) if timing.every is not None else None
    return replace(timing, start_at=None, end_at=None, anchor=anchor).newest_slot(now) or now


def first_line(timing: Timing, now: datetime) -> tuple[SlotRun, ...]:
    """Single times that have passed when a schedule is created that has other slots as well: they run, though late."""
    if timing.one_shot:
        return ()
    found = []
    for slot in timing.single_times(_EPOCH, now):
        before = timing.around(slot).before
        found.append(SlotRun(slot, slot if before is None else before, now, caught_up=True))
    return tuple(found)
