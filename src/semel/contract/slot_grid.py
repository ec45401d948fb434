"""The slots of a schedule as whole seconds of UTC, a day at a time: found, counted and cut without listing them all.

A *chunk* is (base, times): its slots are `base + time`, ascending. Chunks come in the order of their slots, and no slot
is in two of them. On an ordinary day every chunk of the same expressions shares one list of times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from heapq import merge
from itertools import groupby, takewhile
from typing import Final, Protocol

from semel.contract.cron import DAY, Cron
from semel.contract.zones import FIRST_YEAR, LAST_YEAR, Period, year_periods

Chunk = tuple[int, Sequence[int]]

HORIZON: Final = 50
"""Years to look ahead: what has no slot in them has none at all."""

_REMEMBERED_DAYS: Final = 64

END_OF_TIME: Final = int(datetime(LAST_YEAR, 1, 1, tzinfo=UTC).timestamp())


class Exclusion:
    """Wall-clock times that do not count: whole days, and what cron expressions match."""

    __slots__ = ("_crons", "_days")

    def __init__(self, days: frozenset[int] = frozenset(), crons: tuple[Cron, ...] = ()) -> None:
        self._days = days
        self._crons = crons

    def __bool__(self) -> bool:
        return bool(self._days or self._crons)

    def on_day(self, day: int) -> tuple[bool, tuple[Cron, ...]]:
        """Whether all of the day is excluded, and else the expressions that may exclude some of its times."""
        if day in self._days:
            return True, ()
        return False, tuple(cron for cron in self._crons if cron.matches_day(day))

    def covers(self, wall: int) -> bool:
        """Whether this wall-clock time is excluded."""
        return wall // DAY in self._days or any(cron.matches(wall) for cron in self._crons)


class Grid(Protocol):
    """Where chunks come from."""

    def ascending(self, after: int, until: int) -> Iterator[Chunk]:
        """Chunks in order that may hold slots in (after, until]."""

    def descending(self, before: int, since: int) -> Iterator[Chunk]:
        """Chunks in reverse order that may hold slots in [since, before)."""


class ListGrid:
    """Slots that are given one by one, or by a range."""

    __slots__ = ("_slots",)

    def __init__(self, slots: Sequence[int]) -> None:
        self._slots = slots

    def ascending(self, after: int, until: int) -> Iterator[Chunk]:
        """Every slot, as one chunk."""
        if self._slots:
            yield 0, self._slots

    def descending(self, before: int, since: int) -> Iterator[Chunk]:
        """Every slot, as one chunk."""
        if self._slots:
            yield 0, self._slots


class _DayGrid(ABC):
    """Slots that depend on the day of the wall clock in a zone."""

    __slots__ = ("_exclusion", "_keep_excluded", "_zone")

    def __init__(self, zone: str, exclusion: Exclusion, keep_excluded: bool) -> None:
        self._zone = zone
        self._exclusion = exclusion
        self._keep_excluded = keep_excluded

    def ascending(self, after: int, until: int) -> Iterator[Chunk]:
        """The chunks of each day that may have slots, for fifty years."""
        year = max(_year_of(after), FIRST_YEAR)
        for number in range(year, min(year + HORIZON, LAST_YEAR)):
            for period in year_periods(self._zone, number):
                if period.end <= after:
                    continue
                if period.begin > until:
                    return
                begin = max(period.begin, after)
                day: int | None = (begin + period.offset) // DAY
                while day is not None and day * DAY - period.offset < min(period.end, until + 1):
                    chunk = self._chunk(period, day)
                    if chunk[1]:
                        yield chunk
                    day = self._next_day(day + 1, period.offset)

    def descending(self, before: int, since: int) -> Iterator[Chunk]:
        """The chunks of each day that may have slots, for fifty years back."""
        year = min(_year_of(before), LAST_YEAR - 1)
        for number in range(year, max(year - HORIZON, FIRST_YEAR - 1), -1):
            for period in reversed(year_periods(self._zone, number)):
                if period.begin >= before:
                    continue
                if period.end <= since:
                    return
                first = (period.begin + period.offset) // DAY
                day = (min(period.end, before) - 1 + period.offset) // DAY
                while day >= first and (day + 1) * DAY - period.offset > since:
                    chunk = self._chunk(period, day)
                    if chunk[1]:
                        yield chunk
                    previous = self._previous_day(day - 1, period.offset)
                    # The first day of a period has what was left out when it began, whether it matches or not.
                    day = day - 1 if day == first else max(first, -1 if previous is None else previous)

    @abstractmethod
    def _chunk(self, period: Period, day: int) -> Chunk:
        """The slots of one day."""

    @abstractmethod
    def _next_day(self, day: int, offset: int) -> int | None:
        """The first day from this one on that may have slots."""

    @abstractmethod
    def _previous_day(self, day: int, offset: int) -> int | None:
        """The last day up to this one that may have slots."""

    def _filter(self, times: Sequence[int], whole_day: bool, crons: tuple[Cron, ...], base: int) -> Sequence[int]:
        """Those that are not excluded, or only those that are. `base` makes a time a second of the day."""
        if whole_day or not crons:
            return times if whole_day == self._keep_excluded else ()
        keep = self._keep_excluded
        return [time for time in times if any(cron.matches_time(time + base) for cron in crons) == keep]


class CronGrid(_DayGrid):
    """The slots of cron expressions in a zone.

    An expression that matches every hour fires whenever the wall clock shows a time that it matches. Any other fires
    once for each wall-clock time: where clocks go forward, times that are left out fire once when it happens (`shift`)
    or not at all; where they go back, a time that comes twice fires in its `first` pass, its `last`, or in `both`.
    """

    __slots__ = ("_crons", "_repeated", "_shift", "_templates")

    def __init__(
        self,
        crons: tuple[Cron, ...],
        zone: str,
        *,
        shift: bool = True,
        repeated: str = "first",
        exclusion: Exclusion = Exclusion(),  # noqa: B008
        keep_excluded: bool = False,
    ) -> None:
        super().__init__(zone, exclusion, keep_excluded)
        self._crons = crons
        self._shift = shift
        self._repeated = repeated
        self._templates: dict[tuple[object, ...], Sequence[int]] = {}

    def _next_day(self, day: int, offset: int) -> int | None:
        if len(self._crons) == 1:
            return self._crons[0].next_day(day)
        return min((found for cron in self._crons if (found := cron.next_day(day)) is not None), default=None)

    def _previous_day(self, day: int, offset: int) -> int | None:
        return max((found for cron in self._crons if (found := cron.previous_day(day)) is not None), default=None)

    def _chunk(self, period: Period, day: int) -> Chunk:
        base = day * DAY - period.offset
        if base < period.begin or base + DAY > period.end or base < period.first_from or base + DAY > period.last_until:
            return 0, self._partial(period, day)
        if period.gap and base == period.begin:
            return 0, self._partial(period, day)
        matching = tuple(cron for cron in self._crons if cron.matches_day(day))
        return base, self._template(matching, *self._exclusion.on_day(day)) if matching else ()

    def _template(self, matching: tuple[Cron, ...], whole_day: bool, excluding: tuple[Cron, ...]) -> Sequence[int]:
        """The seconds of an ordinary day on which these expressions match, made once."""
        key = (matching, whole_day, excluding)
        found = self._templates.get(key)
        if found is None:
            times = matching[0].times if len(matching) == 1 else sorted({t for cron in matching for t in cron.times})
            found = self._templates[key] = self._filter(times, whole_day, excluding, 0)
        return found

    def _partial(self, period: Period, day: int) -> Sequence[int]:
        """The slots of a day on which the offset changes, or a year of UTC ends."""
        base = day * DAY - period.offset
        begin, end = max(base, period.begin), min(base + DAY, period.end)
        slots: set[int] = set()
        for cron in self._crons:
            low, high = begin, end
            if not cron.every_hour:
                low = max(low, period.first_from) if self._repeated == "first" else low
                high = min(high, period.last_until) if self._repeated == "last" else high
                if self._shift and period.gap and begin == period.begin and cron.fires_between(*period.gap):
                    slots.add(begin)
            if low < high and cron.matches_day(day):
                times = cron.times
                slots.update(base + t for t in times[bisect_left(times, low - base) : bisect_left(times, high - base)])
        return self._filter(sorted(slots), *self._exclusion.on_day(day), -base)


class IntervalGrid(_DayGrid):
    """Slots at equal distances, of which some may be excluded by their wall-clock time in a zone."""

    __slots__ = ("_filtered", "_slots")

    def __init__(self, slots: Sequence[int], zone: str, exclusion: Exclusion, keep_excluded: bool = False) -> None:
        super().__init__(zone, exclusion, keep_excluded)
        self._slots = slots
        self._filtered: dict[tuple[object, ...], Sequence[int]] = {}

    def _next_day(self, day: int, offset: int) -> int | None:
        index = bisect_left(self._slots, day * DAY - offset)
        return (self._slots[index] + offset) // DAY if index < len(self._slots) else None

    def _previous_day(self, day: int, offset: int) -> int | None:
        index = bisect_left(self._slots, (day + 1) * DAY - offset)
        return (self._slots[index - 1] + offset) // DAY if index else None

    def _chunk(self, period: Period, day: int) -> Chunk:
        base = day * DAY - period.offset
        begin, end = max(base, period.begin), min(base + DAY, period.end)
        slots = self._slots[bisect_left(self._slots, begin) : bisect_left(self._slots, end)]
        whole_day, crons = self._exclusion.on_day(day)
        if not slots or not crons or not isinstance(slots, range):
            return 0, self._filter(slots, whole_day, crons, -base)
        # Most intervals divide a day: then each day is filtered like the one before.
        key = (slots[0] - base, len(slots), crons)
        found = self._filtered.get(key)
        if found is None:
            if len(self._filtered) >= _REMEMBERED_DAYS:
                self._filtered.clear()
            times = range(slots[0] - base, slots[-1] - base + 1, slots.step)
            found = self._filtered[key] = self._filter(times, whole_day, crons, 0)
        return base, found


class SlotSet:
    """The slots of a grid in [begin, end)."""

    __slots__ = ("_begin", "_end", "_grid")

    def __init__(self, grid: Grid, begin: int = 0, end: int = END_OF_TIME) -> None:
        self._grid = grid
        self._begin = max(begin, 0)
        self._end = min(end, END_OF_TIME)

    def next(self, after: int, until: int = END_OF_TIME) -> int | None:
        """The first slot in (after, until]."""
        after, until = max(after, self._begin - 1), min(until, self._end - 1)
        for base, times in self._grid.ascending(after, until):
            index = bisect_right(times, after - base)
            if index < len(times):
                found = base + times[index]
                return found if found <= until else None
        return None

    def previous(self, before: int) -> int | None:
        """The last slot before an instant."""
        before = min(before, self._end)
        for base, times in self._grid.descending(before, self._begin):
            index = bisect_left(times, before - base)
            if index:
                found = base + times[index - 1]
                return found if found >= self._begin else None
        return None

    def iterate(self, after: int) -> Iterator[int]:
        """Every slot after an instant, in order."""
        after = max(after, self._begin - 1)
        for base, times in self._grid.ascending(after, self._end - 1):
            begin, end = bisect_right(times, after - base), bisect_left(times, self._end - base)
            yield from (base + times[index] for index in range(begin, end))
            if end < len(times):
                break

    def count(self, after: int, until: int) -> int:
        """How many slots there are in (after, until]."""
        after, until = max(after, self._begin - 1), min(until, self._end - 1)
        total = 0
        for base, times in self._grid.ascending(after, until) if after < until else ():
            if base + times[0] > until:
                break
            total += bisect_right(times, until - base) - bisect_right(times, after - base)
        return total

    def newest(self, limit: int, after: int, until: int) -> list[int]:
        """The last `limit` slots in (after, until], oldest first."""
        after, until = max(after, self._begin - 1), min(until, self._end - 1)
        found: list[int] = []
        for base, times in self._grid.descending(until + 1, after + 1) if after < until else ():
            end = bisect_right(times, until - base)
            begin = max(bisect_right(times, after - base), end - (limit - len(found)))
            found.extend(base + times[index] for index in range(end - 1, begin - 1, -1))
            if len(found) >= limit or base + times[0] <= after:
                break
        return found[::-1]


class SlotUnion(SlotSet):
    """The slots of several sets, each once, but for those that are also in `without`.

    Counting takes time by the number of slots: about a second for a year of minutes.
    """

    __slots__ = ("_sets", "_without")

    def __init__(self, sets: Sequence[SlotSet], without: SlotSet | None = None) -> None:
        super().__init__(ListGrid(()))
        self._sets = sets
        self._without = without

    def next(self, after: int, until: int = END_OF_TIME) -> int | None:
        """The first slot in (after, until]."""
        while True:
            after = min((at for one in self._sets if (at := one.next(after, until)) is not None), default=until + 1)
            if after > until:
                return None
            if not self._leaves_out(after):
                return after

    def previous(self, before: int) -> int | None:
        """The last slot before an instant."""
        while True:
            found = max((at for one in self._sets if (at := one.previous(before)) is not None), default=None)
            if found is None or not self._leaves_out(found):
                return found
            before = found

    def iterate(self, after: int) -> Iterator[int]:
        """Every slot after an instant, in order."""
        return (at for at, _ in groupby(merge(*(one.iterate(after) for one in self._sets))) if not self._leaves_out(at))

    def count(self, after: int, until: int) -> int:
        """How many slots there are in (after, until]."""
        return sum(1 for _ in takewhile(lambda at: at <= until, self.iterate(after)))

    def newest(self, limit: int, after: int, until: int) -> list[int]:
        """The last `limit` slots in (after, until], oldest first."""
        found: list[int] = []
        before = until + 1
        while len(found) < limit and (at := self.previous(before)) is not None and at > after:
            found.append(at)
            before = at
        return found[::-1]

    def _leaves_out(self, at: int) -> bool:
        return self._without is not None and self._without.previous(at + 1) == at


def _year_of(at: int) -> int:
    return datetime.fromtimestamp(at, UTC).year
