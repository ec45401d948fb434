"""The answer to a message of an entity, as it is stored."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw, Struct

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engine.protocol import Outcome
from semel.flow.entries import raw, stored
from semel.flow.turn import Reply


class _Stored(Struct, array_like=True):
    status: str
    output: Raw
    error: ErrorInfo | None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_Stored).decode


def dump(reply: Reply) -> bytes:
    """As it is stored."""
    return _encode(_Stored(reply.status.value, raw(reply.output), reply.error))


def load(data: bytes) -> Outcome:
    """As it was stored."""
    found = _decode(data)
    return Outcome(Status(found.status), stored(found.output), found.error, expired=False)
