"""A sliding window over message keys: was this one seen lately?

    push(a)      push(b)         push(a): seen        push(c)
      │            │                │                   │
    ──a────────────b────────────────┼───────────────────c──▶ time
      ├──────────── window ──────────────────────┤ a may be forgotten from here on

For an actor that lives for years: it remembers a key for as long as its sender may retry, not for ever. Time is
always the caller's (in a workflow: workflow time), as timezone-aware datetimes, so that a replay finds the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from semel.contract.durations import Duration, parse_duration
from semel.contract.keys import check_key
from semel.errors import InvalidValue, NotDecodable, SemelError

DEFAULT_WINDOW: Final = "3d"
DEFAULT_KEYS: Final = 10_000
FORMAT: Final = 1

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SPARE: Final = 64
"""A table this small is not worth shrinking."""


class DedupWindow:
    """Keys of the last `window`, at most `max_keys` of them, each with a result if there was one.

    A key is remembered for at least the window: at an age of exactly the window it is still seen. A duplicate never
    refreshes it. Only more than `max_keys` keys within one window make it forget sooner, the oldest first, and then
    `overflowed` counts what it forgot.

    A clock that goes backwards is taken to stand still: keys are kept longer, never shorter.
    """

    __slots__ = (
        "_entries",
        "_latest",
        "_peak",
        "_window",
        "evicted",
        "hits",
        "last_hit_age",
        "max_hit_age",
        "max_keys",
        "overflowed",
    )

    def __init__(self, window: Duration = DEFAULT_WINDOW, max_keys: int = DEFAULT_KEYS) -> None:
        self._window = _USUAL if window is DEFAULT_WINDOW else check_window(window) // _MICROSECOND
        self.max_keys = check_max_keys(max_keys)
        self._entries: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self._latest: int | None = None
        self._peak = 0
        self.hits = 0
        """Duplicates that `push` has found."""
        self.evicted = 0
        """Keys that were forgotten because their window was over."""
        self.overflowed = 0
        """Keys that were forgotten too soon, because there were more than `max_keys`. Worth an alert."""
        self.last_hit_age: timedelta | None = None
        """How old the key was when the last duplicate came."""
        self.max_hit_age: timedelta | None = None
        """How old a key has ever been when a duplicate came. Far below the window: the window may be shorter."""

    @property
    def window(self) -> timedelta:
        """How long a key is remembered, at least."""
        return self._window * _MICROSECOND

    def __len__(self) -> int:
        """How many keys are held; those that have expired count until the next `push`."""
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        """Is the key held? Expired ones are until the next `push`."""
        return key in self._entries

    def __repr__(self) -> str:
        return f"<DedupWindow of {self.window}: {len(self)} keys, {self.hits} hits, {self.overflowed} overflowed>"

    def push(self, key: str, now: datetime, result: Any = None) -> bool:
        """True: the key is new, and now recorded. False: it was seen within the window, and nothing has changed.

        Evicts what has expired, from the oldest to the first that has not. `result` has to be plain JSON.
        """
        return self.push_at(check_key(key, "dedup_key"), _exact(now), result)

    def push_at(self, key: str, at: int, result: Any = None) -> bool:
        """The same in microseconds since 1970, for a key that was checked when it came in."""
        at = self._latest = self._clamped(at)
        self._evict(at)
        entry = self._entries.get(key)
        if entry is not None:
            age = (at - entry[0]) * _MICROSECOND
            self.hits += 1
            self.last_hit_age = age
            self.max_hit_age = age if self.max_hit_age is None else max(age, self.max_hit_age)
            return False
        self._entries[key] = (at, result)
        self._trim()
        return True

    def seen(self, key: str, now: datetime) -> bool:
        """Was the key pushed within the window? Changes nothing and counts nothing."""
        return self._live(key, now) is not None

    def result_of(self, key: str, now: datetime) -> Any:
        """The result recorded with a key; None if there is none, or the key is not (or no longer) known."""
        entry = self._live(key, now)
        return None if entry is None else entry[1]

    def held_result(self, key: str) -> Any:
        """The result recorded with a key that is held, whatever its age; for a key that was checked when it came in."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def set_result(self, key: str, result: Any) -> bool:
        """Record the result of a key that was pushed before its work was done. False: the key is gone meanwhile."""
        key = check_key(key, "dedup_key")
        entry = self._entries.get(key)
        if entry is None:
            return False
        self._entries[key] = (entry[0], result)
        return True

    def forget(self, key: str) -> bool:
        """Let the key in again: its work failed and left nothing behind. False: it was not known."""
        return self._entries.pop(check_key(key, "dedup_key"), None) is not None

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON values. Times are exact; each entry has the microseconds since the one before."""
        entries: list[list[Any]] = []
        before = 0
        for key, (at, result) in self._entries.items():
            entries.append([key, at - before] if result is None else [key, at - before, result])
            before = at
        return {
            "v": FORMAT,
            "window": self._window,
            "max_keys": self.max_keys,
            "latest": self._latest,
            "entries": entries,
            "hits": self.hits,
            "evicted": self.evicted,
            "overflowed": self.overflowed,
            "last_hit_age": None if self.last_hit_age is None else self.last_hit_age // _MICROSECOND,
            "max_hit_age": None if self.max_hit_age is None else self.max_hit_age // _MICROSECOND,
        }

    @classmethod
    def from_json(
        cls, data: Mapping[str, Any], *, window: Duration | None = None, max_keys: int | None = None
    ) -> DedupWindow:
        """What `to_json` gave. `window` and `max_keys` replace the stored ones: code may change while an actor lives.

        Raises NotDecodable for anything else.
        """
        try:
            if data["v"] != FORMAT:
                raise NotDecodable(
                    f"this DedupWindow was stored in format {data['v']!r}, and this Semel reads {FORMAT}: upgrade it."
                )
            made = cls(
                data["window"] * _MICROSECOND if window is None else window,
                data["max_keys"] if max_keys is None else max_keys,
            )
            made._load(data)
        except SemelError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise NotDecodable(f"this was not written by DedupWindow.to_json(): {error!r}.") from error
        return made

    def _load(self, data: Mapping[str, Any]) -> None:
        at = 0
        for key, since, *result in data["entries"]:
            at += since
            self._entries[key] = (at, result[0] if result else None)
        self._latest = data["latest"]
        self.hits, self.evicted, self.overflowed = data["hits"], data["evicted"], data["overflowed"]
        last, most = data["last_hit_age"], data["max_hit_age"]
        self.last_hit_age = None if last is None else last * _MICROSECOND
        self.max_hit_age = None if most is None else most * _MICROSECOND
        self._trim()

    def _live(self, key: str, now: datetime) -> tuple[int, Any] | None:
        entry = self._entries.get(check_key(key, "dedup_key"))
        return None if entry is None or self._clamped(_exact(now)) - entry[0] > self._window else entry

    def _clamped(self, at: int) -> int:
        """Never before what was seen already."""
        return at if self._latest is None or at > self._latest else self._latest

    def _evict(self, at: int) -> None:
        """Drop the expired. Times never decrease from entry to entry, so the first live one ends it."""
        entries = self._entries
        while entries:
            key = next(iter(entries))
            if at - entries[key][0] <= self._window:
                break
            del entries[key]
            self.evicted += 1
        if self._peak > 4 * len(entries) + _SPARE:
            # A dict keeps its table when entries go. Copying what is left costs less than what was evicted since.
            self._entries = OrderedDict(entries)
            self._peak = len(entries)

    def _trim(self) -> None:
        while len(self._entries) > self.max_keys:
            self._entries.popitem(last=False)
            self.overflowed += 1
        if len(self._entries) > self._peak:
            self._peak = len(self._entries)


def _exact(now: datetime) -> int:
    """Microseconds since 1970."""
    if now.tzinfo is None:
        raise InvalidValue(f"now={now!r} has no time zone: give workflow.now(), or datetime.now(UTC).")
    return (now - _EPOCH) // _MICROSECOND


def check_window(window: Duration) -> timedelta:
    """A positive duration."""
    span = parse_duration(window, "window")
    if not span:
        raise InvalidValue(f"window={window!r}: give a positive duration such as '3d'.")
    return span


def check_max_keys(max_keys: object) -> int:
    """At least one: a window that holds nothing would let every duplicate in."""
    if isinstance(max_keys, bool) or not isinstance(max_keys, int) or max_keys < 1:
        raise InvalidValue(f"max_keys={max_keys!r}: give a whole number, 1 or more.")
    return max_keys


_USUAL: Final = check_window(DEFAULT_WINDOW) // _MICROSECOND
"""Read once: every snapshot of a flow has a window, and most of them are empty."""
