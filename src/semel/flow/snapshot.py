"""What a run begins with: its input, and what it carries over from the run before."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from semel.codec import decoder_of
from semel.contract.window import DedupWindow
from semel.flow.entries import Signalled


class Snapshot(Struct, frozen=True):
    """The beginning of a run. `numbers` goes on: a late answer to an earlier run fits no command of this one."""

    input: bytes
    run: int = 1
    numbers: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    signals: tuple[Signalled, ...] = ()
    seen: DedupWindow = field(default_factory=DedupWindow)
    active: int = 0
    """Of an entity: when the last message came."""
    deadline: int | None = None
    """When its time is up: a timeout is for all runs together."""


class _Stored(Struct, array_like=True):
    input: Raw
    run: int
    numbers: int
    counts: dict[str, int]
    attributes: dict[str, str]
    signals: list[Signalled]
    seen: dict[str, Any]
    active: int = 0
    deadline: int | None = None


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = decoder_of(_Stored).decode


def dump(snapshot: Snapshot) -> bytes:
    """As it is stored."""
    return _encode(
        _Stored(
            Raw(snapshot.input),
            snapshot.run,
            snapshot.numbers,
            snapshot.counts,
            snapshot.attributes,
            list(snapshot.signals),
            snapshot.seen.to_json(),
            snapshot.active,
            snapshot.deadline,
        )
    )


def load(data: bytes) -> Snapshot:
    """As it was stored."""
    s = _decode(data)
    return Snapshot(
        bytes(s.input),
        s.run,
        s.numbers,
        s.counts,
        s.attributes,
        tuple(s.signals),
        DedupWindow.from_json(s.seen),
        s.active,
        s.deadline,
    )
