"""Stored values as Temporal payloads: the same canonical JSON, also for endings and for other people's workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import PayloadCodec
from temporalio.exceptions import ApplicationError, CancelledError

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.flow.turn import Ended

_JSON: Final = {"encoding": b"json/plain"}
_NULL: Final = {"encoding": b"binary/null"}
_SPACED: Final[dict[bytes | None, bytes]] = {None: b"null ", b"null": b"null ", b"[]": b"[ ]"}


def wrap(data: bytes | None) -> RawValue:
    """A stored value for Temporal."""
    return RawValue(Payload(metadata=_NULL) if data is None else Payload(metadata=_JSON, data=data))


def memo_value(data: bytes | None) -> RawValue:
    """A stored value as a memo field that stays, also where it is null or an empty list.

    A cluster removes a field that is set to exactly `null` or `[]`. JSON allows for a space there.
    """
    return wrap(_SPACED.get(data, data))


def unwrap(value: Any) -> bytes | None:
    """The stored value in a payload; JSON null is None, as everywhere.

    Where a trailing argument was left away, Temporal ignores annotations and hands over what it made of the JSON.
    """
    if isinstance(value, RawValue):
        return bytes_of(value.payload)
    return None if value is None else msgspec.json.encode(value)


def bytes_of(payload: Payload) -> bytes | None:
    """The same for a bare payload."""
    data = payload.data
    return None if not data or data == b"null" else data


def wrap_json(value: Any) -> RawValue:
    """A plain value for Temporal."""
    return wrap(msgspec.json.encode(value))


async def uncover(message: Message, codec: PayloadCodec) -> None:
    """Take a codec off every payload inside of a message, in place. Headers and search attributes never have one."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.name in ("Header", "SearchAttributes"):
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [value[key] for key in value] if field.message_type.fields_by_name["value"].message_type else []
        else:
            inner = list(value) if isinstance(value, Sequence) else [value]
        for one in inner:
            if isinstance(one, Payload):
                one.CopyFrom((await codec.decode([one]))[0])
            else:
                await uncover(one, codec)


NOTHING: Final = wrap(None)
"""For an argument that was not given."""


TIMED_OUT: Final = "semel.TimedOut"
"""The error type of what ran longer than it may; Temporal's own timeouts are not used, since they cannot clean up."""


def conclude(ended: Ended) -> RawValue:
    """The result, or the error that Temporal records."""
    match ended.status:
        case Status.COMPLETED:
            return wrap(ended.output)
        case Status.CANCELLED:
            raise CancelledError("cancelled")
        case status:
            error = ended.error or ErrorInfo("", "no error was recorded")
            kind = TIMED_OUT if status is Status.TIMED_OUT else error.type
            raise ApplicationError(error.message, msgspec.to_builtins(error), type=kind, non_retryable=True)
