"""Workflows of other people: their arguments one by one, as Temporal's own converter writes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

from semel.codec import decoder_of
from semel.engines.temporal.memo import ExecutionMemo
from semel.engines.temporal.payloads import bytes_of, wrap
from semel.errors import NotDecodable

_BYTES: Final = (b"binary/plain", b"binary/protobuf")
_SORTED: Final = msgspec.json.Encoder(order="sorted")


class _Given(Struct):
    """What stands for their input everywhere else in Semel."""

    args: list[Raw]


_read_given: Final = decoder_of(_Given).decode


def inputs_of(card: ExecutionMemo, payload: bytes) -> list[RawValue]:
    """A request's input as the workflow takes it: Semel's own take one argument, others theirs."""
    if not card.foreign:
        return [wrap(payload)]
    given = _read_given(payload)
    return [wrap(None if bytes(one) == b"null" else bytes(one)) for one in given.args]


def given_of(inputs: Sequence[bytes | None], *, foreign: bool) -> bytes:
    """The way back: what a run began with as one canonical value, so that it can be compared with a request's."""
    values = [None if one is None else msgspec.json.decode(one) for one in inputs]
    return _SORTED.encode({"args": values} if foreign else (values or [None])[0] or {})


def plain_of(payload: Payload) -> bytes | None:
    """A value as JSON; bytes are base64, as everywhere in Semel. NotDecodable: only a codec could read it."""
    data = bytes_of(payload)
    encoding = payload.metadata.get("encoding", b"")
    if data is None or encoding.startswith(b"json/"):
        return data
    if encoding not in _BYTES:
        raise NotDecodable(
            f"a value of this workflow is encoded as {encoding.decode(errors='replace')!r}: give the App the codec "
            "that it was written with, App(…, codec=…)."
        )
    return msgspec.json.encode(b64encode(data).decode())
