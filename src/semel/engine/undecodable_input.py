"""Input that a worker cannot decode: it is left for a worker that can, and fails after `decode_timeout`."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct

from semel.codec import decoder_of
from semel.contract.durations import format_duration
from semel.contract.records import ErrorInfo

FIRST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds until it is offered again: as long as it has waited so far, within these bounds."""
EVERY: Final = 60.0
"""Seconds between two warnings about one function."""
NOT_DECODABLE: Final = ErrorInfo("semel.NotDecodable", "the stored arguments do not fit the function's signature.")
"""For an input that could not be decoded, when nobody knows any more what was wrong with it."""


class _Stored(Struct, omit_defaults=True):
    """An error as a database keeps it, with the time since when nobody could decode the input."""

    type: str
    message: str
    traceback: str = ""
    undecodable_since: int | None = None


_read: Final = decoder_of(_Stored).decode


def next_offer(waited: float, patience: timedelta) -> float | None:
    """Seconds until it is offered to a worker again; None: it has waited for long enough and fails."""
    left = patience.total_seconds() - waited
    if left <= 0:
        return None
    return min(left, LONGEST, max(FIRST, waited))


def waiting(error: ErrorInfo, patience: timedelta) -> ErrorInfo:
    """The error that is shown while it waits."""
    text = (
        f"{error.message} It is left for a worker whose code fits, without counting an attempt, and fails after "
        f"{format_duration(patience)} (decode_timeout)."
    )
    return ErrorInfo(error.type, text)


def given_up(error: ErrorInfo, patience: timedelta) -> ErrorInfo:
    """The error that it fails with."""
    text = f"{error.message} No worker could decode it for {format_duration(patience)} (decode_timeout)."
    return ErrorInfo(error.type, text, error.traceback)


def dump_waiting(error: ErrorInfo, since: int) -> bytes:
    """The error of one that waits, as it is stored."""
    return msgspec.json.encode(_Stored(error.type, error.message, error.traceback, since))


def load_since(error: bytes | None) -> int | None:
    """Microseconds since 1970: since when nobody could decode the input. None: that is not what went wrong last."""
    return None if error is None else _read(error).undecodable_since


class Warner:
    """Warns of input that this worker cannot decode: once a minute for each function, however much there is."""

    def __init__(self, log: logging.Logger, patience: timedelta) -> None:
        self._log = log
        self._patience = patience
        self._last: dict[str, float] = {}

    def left(self, name: str, execution: str, message: str) -> None:
        """A task is left for a worker that can decode its input."""
        now = time.monotonic()
        if now - self._last.get(name, -EVERY) < EVERY:
            return
        self._last[name] = now
        self._log.warning(
            "task %r is left for a worker whose code fits (execution %s; others may be left too): %s It fails after %s "
            "(decode_timeout).",
            name,
            execution,
            message,
            format_duration(self._patience),
        )
