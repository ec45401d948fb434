"""Messages that an entity has seen: duplicates, stored answers, and failures."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, FailedMessage, MessageConflict, Undelivered
from semel.contract.times import from_micros
from semel.contract.window import DedupWindow
from semel.engine.protocol import Outcome
from semel.flow.entries import raw, stored
from semel.flow.turn import Reply

PRIVATE: Final = " "
"""Begins the key of a question that was asked without one. No key that people give begins with it."""
QUESTIONS: Final = ("1h", 10_000)
"""How long, and how many, answers to such questions are kept: nobody but their asker can want them."""
GRACE: Final = 60_000_000
"""Microseconds for which an answer stays readable, also when its key had to make room for others."""
MOST_LATE: Final = 10_000
"""How many such answers are kept, whoever sends how much."""
FAILED: Final = f"{PRIVATE}failed:"
"""Begins what stands in place of a key for a message that had none and failed; its number follows."""
REDRIVE: Final = f"{PRIVATE}redrive:"
"""Begins the key of such a message that is sent again; the number it failed under follows."""
CONFLICT: Final = f"{PRIVATE}conflict:"
"""Begins what stands in place of a key for a note that a message was refused; its number follows."""
MOST_FAILED: Final = 100
FAILED_FOR: Final = 30 * 86_400_000_000
"""How many failed messages are kept to be looked at and sent again, and for how many microseconds."""
FAILED_BYTES: Final = 262_144
"""Of the arguments of failed messages together; those of one that does not fit are not kept."""
MOST_CONFLICTS: Final = 20
"""How many refused messages are listed; all of them are counted."""


class SeenRow(NamedTuple):
    """A message key as it is written down."""

    n: int
    key: str
    at: int
    """When its message was done."""
    mark: str | None = None
    """What the message is compared by; None in rows from before there were marks."""
    failed: int | None = None
    """Of a failed message, how many bytes of arguments are kept; None: it did not fail, or its key stays taken."""


class _Failed(NamedTuple):
    key: str
    at: int
    size: int


class Seen:
    """Keys by the time their messages came; `rows` are those that are written down, oldest first."""

    def __init__(self, window: DedupWindow, rows: Iterable[SeenRow]) -> None:
        self._given = _AnswerRows(window)
        self._made = _AnswerRows(DedupWindow(*QUESTIONS))
        self._failed: OrderedDict[int, _Failed] = OrderedDict()
        self._failed_keys: dict[str, int] = {}
        self._failed_bytes = 0
        self._conflicts: deque[tuple[int, int]] = deque()
        self._last = 0
        self._gone: list[int] = []
        for n, key, at, mark, failed in rows:
            self._last = n
            if failed is not None:
                self._keep_failed(n, _Failed(key, at, failed))
            elif key.startswith(CONFLICT):
                self._conflicts.append((n, at))
            else:
                self.push(key, at, mark)
                self._rows_of(key).rows[key] = (n, at)
        self._told = window.overflowed

    def push(self, key: str, at: int, mark: str | None = None) -> bool:
        """True: the key is new, or free again. False: a message with it came within the window before."""
        if key.startswith(REDRIVE) and not self._drop_failed(int(key.removeprefix(REDRIVE))):
            return False  # it has been sent again before
        answers = self._rows_of(key)
        if not answers.window.push_at(key.removeprefix(PRIVATE), at, mark):
            return False
        if (old := answers.rows.pop(key, None)) is not None:
            self._gone.append(old[0])  # the answer to its namesake, whose window is over
        if self._failed_keys and (failed := self._failed_keys.get(key)) is not None:
            self._drop_failed(failed)
        return True

    def remember(self, key: str, at: int, mark: str | None = None) -> None:
        """Count the key of a message that was let in before, unless it is written down what became of it."""
        if key not in self._failed_keys:
            self._rows_of(key).window.push_at(key.removeprefix(PRIVATE), at, mark)

    def mark_of(self, key: str) -> str | None:
        """What the message is compared by that has this key."""
        found = self._rows_of(key).window.held_result(key.removeprefix(PRIVATE))
        return found if isinstance(found, str) else None

    def done(self, key: str, now: int) -> int:
        """Its message is handled: the number its answer is written under."""
        self._last += 1
        self._rows_of(key).rows[key] = (self._last, now)
        return self._last

    def fail(self, key: str | None, now: int, size: int) -> tuple[SeenRow, bool]:
        """A message has failed: its key is free, and it is kept for a while. The row; are its arguments kept too?"""
        self._last += 1
        given = key is not None and not key.startswith(PRIVATE)
        kept = self._failed_bytes + size <= FAILED_BYTES
        failed = _Failed(key if given and key is not None else f"{FAILED}{self._last}", now, size if kept else 0)
        row = SeenRow(self._last, failed.key, now, self.mark_of(failed.key) if given else None, failed.size)
        if given:
            self._given.window.forget(failed.key)
        self._keep_failed(self._last, failed)
        return row, kept

    def refuse(self, now: int) -> SeenRow:
        """A message was refused: the row of the note that says so."""
        self._last += 1
        self._conflicts.append((self._last, now))
        return SeenRow(self._last, f"{CONFLICT}{self._last}", now)

    def forget(self, now: int) -> list[int]:
        """The numbers of rows that need not be kept any longer."""
        for answers in (self._given, self._made):
            self._forget_answers(answers, now)
        while self._failed:
            n, failed = next(iter(self._failed.items()))
            age, count = now - failed.at, len(self._failed)
            if age < FAILED_FOR and (count <= MOST_FAILED or (age < GRACE and count <= MOST_LATE)):
                break
            self._drop_failed(n)
        while self._conflicts and (len(self._conflicts) > MOST_CONFLICTS or now - self._conflicts[0][1] >= FAILED_FOR):
            self._gone.append(self._conflicts.popleft()[0])
        gone, self._gone = self._gone, []
        return gone

    def _forget_answers(self, answers: _AnswerRows, now: int) -> None:
        rows = answers.rows
        while rows:
            key = next(iter(rows))
            n, since = rows[key]
            late = len(rows) - len(answers.window)
            if key.removeprefix(PRIVATE) in answers.window or (now - since < GRACE and late <= MOST_LATE):
                break
            del rows[key]
            self._gone.append(n)

    def overflowed(self) -> int:
        """How many keys had to be forgotten before their window was over, since this was asked last."""
        told, self._told = self._told, self._given.window.overflowed
        return self._told - told

    def _keep_failed(self, n: int, failed: _Failed) -> None:
        self._failed[n] = failed
        self._failed_bytes += failed.size
        if not failed.key.startswith(PRIVATE):
            self._failed_keys[failed.key] = n

    def _drop_failed(self, n: int) -> bool:
        failed = self._failed.pop(n, None)
        if failed is None:
            return False
        self._failed_bytes -= failed.size
        self._failed_keys.pop(failed.key, None)
        self._gone.append(n)
        return True

    def _rows_of(self, key: str) -> _AnswerRows:
        return self._made if key.startswith(PRIVATE) else self._given


class _AnswerRows:
    def __init__(self, window: DedupWindow) -> None:
        self.window = window
        self.rows: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Answers that are written down, oldest first: number, and since when."""


UndeliveredRow = tuple[int, str, int, bytes, str | None, bytes | None]
"""n, key, at, reply, name, body, as they are written down."""


class _Stored(Struct, array_like=True):
    status: str
    output: Raw
    error: ErrorInfo | None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = decoder_of(_Stored).decode
_decode_conflict: Final = decoder_of(MessageConflict).decode


def dump(reply: Reply) -> bytes:
    """As it is stored."""
    return _encode(_Stored(reply.status.value, raw(reply.output), reply.error))


def load(data: bytes, mark: str | None = None) -> Outcome:
    """As it was stored; `mark` is what the message is compared by that it answers."""
    found = _decode(data)
    return Outcome(Status(found.status), stored(found.output), found.error, expired=False, mark=mark)


def undelivered_of(rows: Iterable[UndeliveredRow]) -> Undelivered:
    """What rows say of messages that failed or were refused, newest first; other rows are passed over."""
    failed: list[FailedMessage] = []
    refused: list[MessageConflict] = []
    for n, key, at, reply, name, body in sorted(rows, key=lambda row: row[0], reverse=True):
        if key.startswith(CONFLICT):
            refused.append(load_conflict(reply))
        elif name is not None:
            error = load(reply).error or ErrorInfo("", "")
            given = None if body is None else msgspec.json.decode(body)
            own = None if key.startswith(PRIVATE) else key
            failed.append(FailedMessage(n, name, own, from_micros(at), error, given))
    return Undelivered(tuple(failed), tuple(refused))


def dump_conflict(conflict: MessageConflict) -> bytes:
    """A note that a message was refused, as it is stored in place of an answer."""
    return _encode(conflict)


def load_conflict(data: bytes) -> MessageConflict:
    """The note that a message was refused, from the row it was stored in."""
    return _decode_conflict(stored(_decode(data).output) or b"")
