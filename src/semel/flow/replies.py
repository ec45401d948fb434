"""The answer to a message of an entity, as it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, FailedMessage, MessageConflict, Undelivered
from semel.contract.times import from_micros
from semel.engine.protocol import Outcome
from semel.flow.entries import raw, stored
from semel.flow.seen import CONFLICT, PRIVATE
from semel.flow.turn import Reply

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
