"""What becomes of each wall-clock time of a schedule: when it fires, or why it does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import merge
from itertools import groupby
from typing import Final

from semel.contract.cron import DAY
from semel.contract.timing import Timing, to_utc
from semel.contract.zones import Period, offset_at, year_periods
from semel.errors import InvalidValue

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001
_SECOND: Final = timedelta(seconds=1)
_REMEMBERED: Final = 10


class Outcome(StrEnum):
    """What becomes of one wall-clock time."""

    FIRES = "fires"
    SHIFTED = "the clock leaves it out: fires when the clock changes"
    LEFT_OUT = "the clock leaves it out"
    EXCLUDED = "excluded"
    BEFORE_START = "before start"
    AFTER_END = "after end"
    UNSCHEDULED = "not in the schedule"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A wall-clock time in the schedule's zone, its slots (two if it comes twice and both fire), and why so."""

    wall: datetime
    slots: tuple[datetime, ...]
    outcome: Outcome
    timezone: str = "UTC"
    """Of the wall clock: triggers of one activity may go by different ones."""


def explain_wall(timing: Timing, wall: datetime) -> Occurrence:
    """When a wall-clock time fires, or why it does not. `wall` is naive: it is a time in the schedule's zone."""
    if wall.tzinfo is not None:
        raise InvalidValue(f"wall={wall!r} has a time zone: give the wall-clock time in {timing.timezone} without one.")
    slots, outcome = _nominal_slots(timing, (wall - _EPOCH) // _SECOND)
    return _apply_bounds(timing, Occurrence(wall, slots, outcome, timing.timezone))


def preview(timing: Timing, after: datetime) -> Iterator[Occurrence]:
    """What fires from an instant (and from `start_at`) on, and what does not and why; ends where `end_at` does.

    Times of cron expressions come in the order of the wall clock, one that comes twice with both of its slots. Those of
    several timings come in the order of their instants; slots that meet are told once, and an end only if all have one.
    """
    after = to_utc(after, "after")
    if timing.others:
        yield from _merge_parts(timing, after)
        return
    if timing.start_at is not None and timing.start_at > after:
        after = timing.start_at - _SECOND
    for found in _from_walls(timing, after) if timing.crons else _from_slots(timing, after):
        yield found
        if found.outcome is Outcome.AFTER_END:
            return


def _merge_parts(timing: Timing, after: datetime) -> Iterator[Occurrence]:
    """What becomes of the times of several timings."""
    streams = [((_order(one, found), found) for found in preview(one, after)) for one in timing.parts]
    told: set[datetime] = set()
    ended = 0
    for _, found in merge(*streams, key=lambda pair: pair[0]):
        if found.outcome is Outcome.AFTER_END:
            ended += 1
            if ended < len(streams):
                continue
        if not found.slots or told.isdisjoint(found.slots):
            yield found
        told = {*sorted(told)[-_REMEMBERED:], *found.slots}


def _order(timing: Timing, found: Occurrence) -> int:
    """The instant of an occurrence; of a time that does not come, where it would be."""
    if found.slots:
        return int(found.slots[0].timestamp())
    wall = (found.wall - _EPOCH) // _SECOND
    return wall - offset_at(timing.timezone, wall)


def _from_walls(timing: Timing, after: datetime) -> Iterator[Occurrence]:
    now = _wall_seconds(timing, after)
    walls = merge(*(cron.walls_from(now - DAY) for cron in timing.crons))
    for seconds, _ in groupby(walls):
        found = explain_wall(timing, _EPOCH + seconds * _SECOND)
        if found.slots[-1] > after if found.slots else seconds > now:
            yield found


def _from_slots(timing: Timing, after: datetime) -> Iterator[Occurrence]:
    for slot in timing.without_bounds().slots(after):
        wall = _EPOCH + _wall_seconds(timing, slot) * _SECOND
        yield _apply_bounds(timing, Occurrence(wall, (slot,), Outcome.FIRES, timing.timezone))


def _apply_bounds(timing: Timing, found: Occurrence) -> Occurrence:
    """Take away the slots that are out of bounds or excluded; the last reason stands if none is left."""
    slots = found.slots
    for reason, passes in (
        (Outcome.BEFORE_START, lambda at: timing.start_at is None or at >= timing.start_at),
        (Outcome.AFTER_END, lambda at: timing.end_at is None or at < timing.end_at),
        (Outcome.EXCLUDED, lambda at: not timing.exclusion.covers(_wall_seconds(timing, at))),
    ):
        if slots and not (slots := tuple(filter(passes, slots))):
            return replace(found, slots=(), outcome=reason)
    return replace(found, slots=slots)


def _nominal_slots(timing: Timing, wall: int) -> tuple[tuple[datetime, ...], Outcome]:
    """The instants of a wall-clock time that are slots, but for bounds and exclusions."""
    periods = _periods_around(timing.timezone, wall)
    instants = [wall - one.offset for one in periods if one.begin <= wall - one.offset < one.end]
    if not timing.crons:
        unbounded = timing.without_bounds()
        found = [at for at in map(_datetime, instants) if unbounded.newest_slot(at) == at]
        return tuple(found), Outcome.FIRES if found else Outcome.UNSCHEDULED
    matching = [cron for cron in timing.crons if cron.matches(wall)]
    if not matching:
        return (), Outcome.UNSCHEDULED
    by_wall_time = any(not cron.every_hour for cron in matching)
    if not instants:
        if not by_wall_time or timing.nonexistent == "skip":
            return (), Outcome.LEFT_OUT
        change = next(one.begin for one in periods if one.gap and one.gap[0] <= wall < one.gap[1])
        return (_datetime(change),), Outcome.SHIFTED
    if len(instants) > 1 and by_wall_time and not any(cron.every_hour for cron in matching):
        instants = {"first": instants[:1], "last": instants[-1:], "both": instants}[timing.repeated]
    return tuple(map(_datetime, instants)), Outcome.FIRES


def _periods_around(zone: str, wall: int) -> list[Period]:
    years = {_datetime(max(0, wall + days * DAY)).year for days in (-2, 0, 2)}
    return [period for year in sorted(years) for period in year_periods(zone, year)]


def _wall_seconds(timing: Timing, at: datetime) -> int:
    instant = int(at.timestamp() // 1)
    return instant + offset_at(timing.timezone, instant)


def _datetime(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)
