"""A codec that can be undone, and after which nothing can be read."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

SEALED = b"binary/sealed"


class Seal(PayloadCodec):
    """Turns every bit around. What it did not seal it leaves alone, as codecs should."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": SEALED}, data=_turned(p.SerializeToString())) for p in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(_turned(p.data)) if p.metadata.get("encoding") == SEALED else p for p in payloads]


def _turned(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)
