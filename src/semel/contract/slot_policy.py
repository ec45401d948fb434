"""What a schedule does with slots that are late or meet an active run, and the words for what became of them.

- `misfire` is about slots that nobody could start in time (everything was down, or the schedule was paused).
- `overlap` is about slots whose time has come while a run of the same schedule is active.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

from semel.contract.durations import Duration, parse_duration
from semel.errors import InvalidValue

LEAST_GRACE: Final = timedelta(seconds=1)
"""A slot is never late within this time, whatever `grace` says: nobody looks at the very instant."""

MOST_GRACE: Final = timedelta(hours=1)
"""The longest grace unless one is given."""

MAX_CATCHUP: Final = 10
MAX_BUFFER: Final = 100
MOST_BUFFERED: Final = 1000
"""The highest limits that `max_catchup` and `max_buffer` can be set to: each waiting slot is stored."""

_Word = TypeVar("_Word", bound=StrEnum)


class Misfire(StrEnum):
    """What becomes of slots that are late."""

    SKIP = "skip"
    CATCHUP = "catchup"
    COMPRESS = "compress"


class Overlap(StrEnum):
    """What becomes of a slot while a run of the same schedule is active."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    ALLOW_ALL = "allow_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"


class SkipReason(StrEnum):
    """Why a slot did not run."""

    LATE = "late"
    ENGINE_DOWN = "engine down"
    OVERLAP = "overlap"
    PAUSED = "paused"
    EXCLUDED = "excluded"
    COMPRESSED = "compressed"
    BEFORE_START = "before start"
    DEADLINE = "deadline"
    CATCHUP_LIMIT = "over the catch-up limit"
    BUFFER_FULL = "buffer full"


class Stop(StrEnum):
    """What to do with the runs that are active, before the new one starts."""

    CANCEL = "cancel"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class SlotPolicy:
    """What a schedule does with slots that are late, overlap or wait.

    - `grace`: until when a late slot still counts as on time. By default half of the time to the next slot, and at most
      an hour; "0" is strict (a second, since nobody looks at the very instant). Single times (`at=`) are never late.
    - `misfire="skip"`: late slots do not run. `"catchup"`: the newest `max_catchup` of them do, oldest first, one after
      the other. `"compress"`: the newest open slot runs, with a window that covers all of them. With both, what is on
      time joins what is late: it runs last, or is part of the one run. An `after="finish"` interval has one open slot
      at a time, so that catching it up is compressing.
    - `max_buffer`: as many slots wait for the active run at most, with `overlap="buffer_all"` and behind a catch-up.
    - `start_deadline`: a slot that has waited longer than this is dropped, in the line or for somebody to begin it.
    """

    misfire: Misfire = Misfire.SKIP
    overlap: Overlap = Overlap.SKIP
    grace: Duration | None = None
    max_catchup: int = MAX_CATCHUP
    max_buffer: int = MAX_BUFFER
    start_deadline: Duration | None = None

    def __post_init__(self) -> None:
        """Check every option and bring it into one form."""
        put = object.__setattr__
        put(self, "misfire", _read_word(Misfire, self.misfire, "misfire"))
        put(self, "overlap", _read_word(Overlap, self.overlap, "overlap"))
        for name in ("max_catchup", "max_buffer"):
            _check_limit(getattr(self, name), name)
        if self.grace is not None:
            put(self, "grace", parse_duration(self.grace, "grace"))
        if self.start_deadline is not None:
            deadline = parse_duration(self.start_deadline, "start_deadline")
            if not deadline:
                raise InvalidValue("start_deadline=0 would drop every slot that waits: give a positive duration.")
            put(self, "start_deadline", deadline)

    @property
    def given_grace(self) -> timedelta | None:
        """The grace that was set, if one was."""
        return max(LEAST_GRACE, parse_duration(self.grace, "grace")) if self.grace is not None else None

    @property
    def longest_wait(self) -> timedelta | None:
        """The start deadline, if one was set."""
        return None if self.start_deadline is None else parse_duration(self.start_deadline, "start_deadline")


@dataclass(frozen=True, slots=True)
class Skipped:
    """Slots that did not run, for one reason: all slots of that kind from `first` to `last`, `count` of them.

    Ranges of slots that are excluded or before the start may lie between those of others. `into` is the slot whose run
    covers them, where they are compressed.
    """

    reason: SkipReason
    first: datetime
    last: datetime
    count: int
    into: datetime | None = None


def _read_word(kind: type[_Word], word: str, what: str) -> _Word:
    try:
        return kind(word)
    except ValueError:
        raise InvalidValue(f"{what}={word!r}: use one of {', '.join(repr(one.value) for one in kind)}.") from None


def _check_limit(limit: object, what: str) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_BUFFERED:
        raise InvalidValue(f"{what}={limit!r}: give a whole number from 1 to {MOST_BUFFERED}.")
