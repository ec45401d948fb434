"""What a workflow takes along into a run: from the one before, or from the one it is reset from."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode

import msgspec
from msgspec import Raw, Struct, field

from semel.codec import decoder_of
from semel.flow.entries import NOTHING, Resolved, Signalled


class ForkPoint(Struct, frozen=True):
    """It goes on from a row of another run, which has ended when this one begins."""

    run: str
    commit: int


class Carried(Struct, frozen=True, omit_defaults=True):
    """The second argument of a run."""

    start: Raw = NOTHING
    """Its snapshot, if it continues as new."""
    base: int = 0
    """The number of the last row before it."""
    seed: str = ""
    """The execution that its dice were first thrown for, if that is another one."""
    bound_children: dict[str, str] = field(name="wards", default_factory=dict)
    """Children that are to be closed with it, and how."""
    stopped: bool = False
    """It was cancelled just then."""
    fork_point: ForkPoint | None = field(name="heir", default=None)


class Inheritance(Struct, frozen=True, omit_defaults=True):
    """What a run that was made by a reset takes over from the run before."""

    carried: Carried = Carried()
    """What that one began with."""
    rows: list[Raw] = field(default_factory=list)
    answers: list[Resolved] = field(default_factory=list)
    """That came after those rows, and stay true."""
    signals: list[Signalled] = field(default_factory=list)
    """That came after them, or were not taken in."""
    bound_children: dict[str, str] = field(name="wards", default_factory=dict)


_read_carried = decoder_of(Carried).decode
_read_inheritance = decoder_of(Inheritance).decode


def load(data: bytes | None) -> Carried:
    """As a run finds it."""
    return Carried() if data is None else _read_carried(data)


def pack(left: Inheritance) -> bytes:
    """Small, since a payload has two megabytes at most."""
    return msgspec.json.encode({"zlib": b64encode(zlib.compress(msgspec.json.encode(left))).decode()})


def unpack(data: bytes) -> Inheritance:
    """The same again."""
    packed = msgspec.json.decode(data)["zlib"]
    return _read_inheritance(zlib.decompress(b64decode(packed)))
