"""When a schedule is to fire: cron expressions, an interval or single times, and the slots that come of them.

A *slot* is the nominal time of a run: an aware datetime in UTC, in whole seconds. It depends on the timing alone, so
that everybody who computes it gets the same. Jitter moves when a slot fires, never the slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from itertools import islice
from typing import Final, Literal, NamedTuple

from semel.contract.cron import EPOCH_ORDINAL, Cron, parse_cron
from semel.contract.durations import Duration, parse_duration
from semel.contract.slot_grid import END_OF_TIME, CronGrid, Exclusion, Grid, IntervalGrid, ListGrid, SlotSet, SlotUnion
from semel.contract.zones import load_zone
from semel.errors import InvalidValue

MAX_TIMES: Final = 1000
"""The most expressions, single times or exclusions that one schedule can have."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class SlotSpan:
    """Slots that follow one another: the first, the last and how many."""

    first: datetime
    last: datetime
    count: int


class Around(NamedTuple):
    """An instant between slots: the last slot before `newest`, the last one at the instant or before it, the next."""

    before: datetime | None
    newest: datetime | None
    following: datetime | None


@dataclass(frozen=True)
class Timing:
    """When a schedule is to fire: one of `cron`, `every` and `at`, and what `others` add.

    - `cron`: one expression or several; those that meet at one instant are one slot. With `seconds` they have six
      fields. `nonexistent` and `repeated` say what becomes of wall-clock times that clocks leave out or show twice.
      They do not concern expressions whose hour field matches every hour: those go by elapsed time, so that
      `*/30 * * * *` never pauses.
    - `every`: an interval of elapsed time in whole seconds, counted from `start_at`, or else from 1970-01-01 UTC, so
      that an edit of anything else does not move its slots. With `after="finish"` it is counted from the end of the
      last run (see `anchor_at`).
    - `at`: single times. A fraction of a second is rounded up.

    Slots lie in [start_at, end_at). `exclude` has days of the wall clock in `timezone` (dates, or "2026-12-25") and
    cron expressions: a slot whose wall-clock time matches one is left out. Five fields match whole minutes there.
    `jitter` delays a slot by up to so much, and never to the next slot or beyond; by how much is fixed for each slot
    and `schedule_id`.

    A slot of one of the `others` is a slot of this timing too. Those that meet at one instant are one slot, which has
    the least jitter of them.
    """

    cron: str | tuple[str, ...] = ()
    seconds: bool = False
    every: Duration | None = None
    after: Literal["start", "finish"] = "start"
    at: datetime | tuple[datetime, ...] = ()
    timezone: str = "UTC"
    nonexistent: Literal["shift", "skip"] = "shift"
    repeated: Literal["first", "last", "both"] = "first"
    exclude: str | date | tuple[str | date, ...] = ()
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter: Duration = timedelta(0)
    schedule_id: str = ""
    anchor: datetime | None = None
    """Where an interval is counted from, instead of `start_at`."""
    others: tuple[Timing, ...] = ()
    """Timings whose slots are added to this one's."""

    crons: tuple[Cron, ...] = field(init=False, repr=False, compare=False)
    exclusion: Exclusion = field(init=False, repr=False, compare=False)
    _slots: SlotSet = field(init=False, repr=False, compare=False)
    _excluded: SlotSet = field(init=False, repr=False, compare=False)
    _early: SlotSet = field(init=False, repr=False, compare=False)
    _parts: tuple[Timing, ...] = field(init=False, repr=False, compare=False)
    _around: list[Around] = field(init=False, repr=False, compare=False)
    """The last answers of `around`: the next question is mostly about the same place."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __hash__(self) -> int:
        return self._hash

    def __post_init__(self) -> None:
        """Check every option, bring them into one form, and prepare the slots."""
        put = object.__setattr__
        for name in ("cron", "at", "exclude"):
            put(self, name, _as_tuple(getattr(self, name), name))
        for name in ("start_at", "end_at", "anchor"):
            put(self, name, _optional_instant(getattr(self, name), name))
        put(self, "jitter", parse_duration(self.jitter, "jitter"))
        self._check_kind()
        load_zone(self.timezone)
        put(self, "crons", tuple(parse_cron(text, seconds=self.seconds) for text in self.cron))
        put(self, "exclusion", _read_exclusion(self.exclude, self.seconds))
        if self.every is not None:
            put(self, "every", _read_interval(self.every))
        put(self, "at", tuple(sorted({_datetime(_ceil_seconds(_instant(at, "at"))) for at in self._times})))
        self._check_bounds()
        begin, end = _bound(self.start_at, 0), _bound(self.end_at, END_OF_TIME)
        put(self, "_slots", SlotSet(self._grid(), begin, end))
        put(self, "_excluded", SlotSet(self._grid(keep_excluded=True), begin, end))
        put(self, "_early", SlotSet(self._grid(Exclusion()), 0, begin))
        put(self, "_around", [])
        put(self, "_parts", (self,))
        put(self, "_hash", hash(tuple(getattr(self, one.name) for one in fields(self) if one.compare)))
        if self.exclusion and self._slots.next(-1) is None and self._excluded.next(-1) is not None:
            raise InvalidValue(f"exclude={self.exclude!r} leaves no slot at all: the schedule would never fire.")
        if self.others:
            self._join_others()

    def _join_others(self) -> None:
        """Add the slots of the others. Times before the first `start_at` of all of them are early."""
        put = object.__setattr__
        if any(one.after == "finish" for one in (self, *self.others)):
            raise InvalidValue(
                "after='finish' counts from the end of the last run: a schedule has no timing beside it."
            )
        if any(one.others for one in self.others):
            raise InvalidValue("the others of a timing have none of their own.")
        parts = (replace(self, others=()), *self.others)
        put(self, "_parts", parts)
        slots = SlotUnion([one._slots for one in parts])
        begin = min(_bound(one.start_at, 0) for one in parts)
        put(self, "_slots", slots)
        put(self, "_excluded", SlotUnion([one._excluded for one in parts if one.exclusion], without=slots))
        put(self, "_early", SlotUnion([SlotSet(one._grid(Exclusion()), 0, begin) for one in parts]))

    def _check_kind(self) -> None:
        kinds = [name for name, given in (("cron", self.cron), ("every", self.every), ("at", self.at)) if given]
        if self.every is not None and "every" not in kinds:
            kinds.append("every")
        if len(kinds) != 1:
            found = " and ".join(f"{name}=" for name in kinds) if kinds else "none of them"
            raise InvalidValue(f"a schedule has one of cron=, every= and at=, and this one has {found}.")
        for name, choices in (
            ("after", ("start", "finish")),
            ("nonexistent", ("shift", "skip")),
            ("repeated", ("first", "last", "both")),
        ):
            if getattr(self, name) not in choices:
                raise InvalidValue(f"{name}={getattr(self, name)!r}: use one of {', '.join(map(repr, choices))}.")
        if self.after == "finish" and self.every is None:
            raise InvalidValue("after='finish' counts from the end of the last run: it goes with every= only.")
        if not self.cron and (self.nonexistent != "shift" or self.repeated != "first"):
            raise InvalidValue("nonexistent= and repeated= are about wall-clock times: they go with cron= only.")
        if self.seconds and not self.cron:
            raise InvalidValue("seconds=True is about cron expressions of six fields: it goes with cron= only.")
        if self.anchor is not None and self.every is None:
            raise InvalidValue("anchor= is where an interval is counted from: it goes with every= only.")

    def _check_bounds(self) -> None:
        if self.start_at is not None and self.end_at is not None and self.end_at <= self.start_at:
            raise InvalidValue(f"end_at={self.end_at} is not after start_at={self.start_at}: there would be no slot.")
        if self.jitter and not self.schedule_id:
            raise InvalidValue("jitter= differs from schedule to schedule: give schedule_id= as well.")

    def _grid(self, exclusion: Exclusion | None = None, keep_excluded: bool = False) -> Grid:
        exclusion = self.exclusion if exclusion is None else exclusion
        if self.crons:
            return CronGrid(
                self.crons,
                self.timezone,
                shift=self.nonexistent == "shift",
                repeated=self.repeated,
                exclusion=exclusion,
                keep_excluded=keep_excluded,
            )
        slots: range | list[int]
        if isinstance(self.every, timedelta):
            anchor = _bound(self.start_at if self.anchor is None else self.anchor, 0)
            slots = range(anchor, END_OF_TIME, self.every // _SECOND)
        else:
            slots = [_ceil_seconds(at) for at in self._times]
        if exclusion or keep_excluded:
            return IntervalGrid(slots, self.timezone, exclusion, keep_excluded)
        return ListGrid(slots)

    @property
    def _times(self) -> tuple[datetime, ...]:
        return self.at if isinstance(self.at, tuple) else (self.at,)

    @property
    def parts(self) -> tuple[Timing, ...]:
        """This timing by itself, and the others."""
        return self._parts

    @property
    def one_shot(self) -> bool:
        """Whether it has single times only."""
        return bool(self.at) and all(one.at for one in self.others)

    @property
    def has_jitter(self) -> bool:
        """Whether a slot may fire later than at its time."""
        return any(one.jitter for one in (self, *self.others))

    def single_times(self, after: datetime, until: datetime) -> list[datetime]:
        """Those of its slots in (after, until] that are given as single times."""
        times = {at for one in (self, *self.others) for at in one._times if after < at <= until}
        return sorted(at for at in times if self.newest_slot(at) == at)

    def anchor_at(self, end: datetime) -> Timing:
        """The timing of an `after="finish"` interval whose last run ended then: `every` later, and so on."""
        return replace(self, after="start", anchor=_EPOCH + _ceil_seconds(_instant(end, "end")) * _SECOND)

    def without_bounds(self) -> Timing:
        """This timing without `end_at` and exclusions, and without `start_at` unless an interval begins there."""
        return replace(self, end_at=None, exclude=(), start_at=self.start_at if self.every is not None else None)

    def slots(self, after: datetime) -> Iterator[datetime]:
        """Every slot after an instant, in order."""
        return (_datetime(at) for at in self._known().iterate(_floor_seconds(after)))

    def next_slot(self, after: datetime) -> datetime | None:
        """The first slot after an instant. None: it never fires again."""
        found = self._known().next(_floor_seconds(after))
        return None if found is None else _datetime(found)

    def previous_slot(self, before: datetime) -> datetime | None:
        """The last slot before an instant."""
        found = self._known().previous(_ceil_seconds(before))
        return None if found is None else _datetime(found)

    def newest_slot(self, at: datetime) -> datetime | None:
        """The last slot at an instant or before it."""
        found = self._known().previous(_floor_seconds(at) + 1)
        return None if found is None else _datetime(found)

    def around(self, at: datetime) -> Around:
        """The slots around an instant."""
        for last in self._around:
            if last.newest is not None and last.following is not None and last.newest <= at < last.following:
                return last
        newest = self.newest_slot(at)
        before = None if newest is None else self.previous_slot(newest)
        found = Around(before, newest, self.next_slot(at))
        self._around[:] = [found, *self._around[:2]]
        return found

    def count(self, after: datetime, until: datetime) -> int:
        """How many slots there are in (after, until]; takes a few milliseconds for a year, however many there are."""
        return self._known().count(_floor_seconds(after), _floor_seconds(until))

    def span(self, after: datetime, until: datetime) -> SlotSpan | None:
        """The slots in (after, until], as first, last and count. None: there are none."""
        return _span(self._known(), after, until)

    def excluded_span(self, after: datetime, until: datetime) -> SlotSpan | None:
        """What would be slots in (after, until] if nothing were excluded."""
        return _span(self._excluded, after, until) if any(one.exclusion for one in (self, *self.others)) else None

    def early_span(self, after: datetime, until: datetime) -> SlotSpan | None:
        """What would be slots in (after, until] if there were no `start_at`."""
        return _span(self._early, after, until) if all(one.start_at for one in (self, *self.others)) else None

    def newest(self, limit: int, after: datetime, until: datetime) -> list[datetime]:
        """The last `limit` slots in (after, until], oldest first."""
        return [_datetime(at) for at in self._known().newest(limit, _floor_seconds(after), _floor_seconds(until))]

    def oldest(self, limit: int, after: datetime, until: datetime) -> list[datetime]:
        """The first `limit` slots in (after, until]."""
        last = _floor_seconds(until)
        found: list[datetime] = []
        for at in islice(self._known().iterate(_floor_seconds(after)), limit):
            if at > last:
                break
            found.append(_datetime(at))
        return found

    def fires_at(self, slot: datetime) -> datetime:
        """When a slot fires: its nominal time and its jitter, always before the next slot."""
        jitter = self._jitter_of(slot) if self.others else self.jitter
        if not jitter or not isinstance(jitter, timedelta):
            return slot
        following = self.around(slot).following
        room = jitter if following is None else min(jitter, following - slot)
        id_ = next(one.schedule_id for one in (self, *self.others) if one.schedule_id)
        return slot + jitter_share(id_, slot) * (room // _MICROSECOND) // 2**64 * _MICROSECOND

    def _jitter_of(self, slot: datetime) -> timedelta:
        """The least jitter of the timings that have this slot."""
        if not self.has_jitter:
            return timedelta(0)
        having = [one.jitter for one in self.parts if one.newest_slot(slot) == slot]
        return min((jitter for jitter in having if isinstance(jitter, timedelta)), default=timedelta(0))

    def _known(self) -> SlotSet:
        if self.after == "finish":
            raise InvalidValue("slots with after='finish' depend on the end of the last run: ask anchor_at(end).")
        return self._slots


def jitter_share(schedule_id: str, slot: datetime) -> int:
    """Which share of the jitter a slot gets, of 2**64. The same for ever: a slot must not move between two looks."""
    text = f"{schedule_id}\n{slot.astimezone(UTC).isoformat()}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def to_utc(at: object, what: str) -> datetime:
    """An aware datetime, in UTC: two times of one zone would compare by their wall clocks in Python."""
    if not isinstance(at, datetime):
        raise InvalidValue(f"{what}={at!r} is not a datetime: give one with a time zone, such as datetime.now(UTC).")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InvalidValue(f"{what}={at!r} has no time zone: give one, such as datetime(…, tzinfo=UTC).")
    return at if at.tzinfo is UTC else at.astimezone(UTC)


def _instant(at: object, what: str) -> datetime:
    found = to_utc(at, what)
    if not 1970 <= found.year < 8999:
        raise InvalidValue(f"{what}={at!r}: use a time from 1970 to 8998.")
    return found


def _optional_instant(at: object, what: str) -> datetime | None:
    return None if at is None else _instant(at, what)


def _bound(at: datetime | None, otherwise: int) -> int:
    return otherwise if at is None else _ceil_seconds(at)


def _floor_seconds(at: datetime) -> int:
    return (to_utc(at, "at") - _EPOCH) // _SECOND


def _ceil_seconds(at: datetime) -> int:
    return -((_EPOCH - to_utc(at, "at")) // _SECOND)


def _datetime(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _span(slots: SlotSet, after: datetime, until: datetime) -> SlotSpan | None:
    low, high = _floor_seconds(after), _floor_seconds(until)
    first = slots.next(low, high)
    if first is None:
        return None
    last = slots.previous(high + 1)
    if last is None or last == first:
        return SlotSpan(_datetime(first), _datetime(first), 1)
    return SlotSpan(_datetime(first), _datetime(last), slots.count(low, high))


def _as_tuple(given: object, what: str) -> tuple[object, ...]:
    if isinstance(given, str | date):
        return (given,)
    if not isinstance(given, Iterable):
        raise InvalidValue(f"{what}={given!r}: give one, or a list of them.")
    found = tuple(given)
    if len(found) > MAX_TIMES:
        raise InvalidValue(f"{what}= has {len(found)} entries: give at most {MAX_TIMES}.")
    return found


def _read_interval(every: Duration) -> timedelta:
    found = parse_duration(every, "every")
    if found < _SECOND or found % _SECOND:
        raise InvalidValue(f"every={every!r}: give whole seconds, at least one.")
    return found


def _read_exclusion(exclude: object, seconds: bool) -> Exclusion:
    days, crons = set(), []
    for entry in exclude if isinstance(exclude, tuple) else ():
        if isinstance(entry, str) and not _DATE.fullmatch(entry.strip()):
            crons.append(parse_cron(entry, seconds=seconds, what="exclude", whole_minutes=True))
        else:
            days.add(_read_date(entry).toordinal() - EPOCH_ORDINAL)
    return Exclusion(frozenset(days), tuple(crons))


def _read_date(entry: object) -> date:
    if isinstance(entry, date) and not isinstance(entry, datetime):
        return entry
    if isinstance(entry, str):
        try:
            return date.fromisoformat(entry.strip())
        except ValueError as error:
            raise InvalidValue(f"exclude={entry!r} is not a date: {error}.") from error
    raise InvalidValue(f"exclude={entry!r}: give a date, such as '2026-12-25', or a cron expression.")
