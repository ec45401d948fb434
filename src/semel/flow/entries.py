"""What a journal is made of: what happened to a workflow, and what it asked for, in order.

A row of the journal holds the entries of one commit. Things that happen (`Began`, `Turned`, `Resolved`, `Fired`,
`Signalled`, `Stopped`) are fed to the code, which then runs until it waits; what it asked for on the way (`Asked`,
`Dropped`) follows. Fed the same, the code must ask for the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.records import ErrorInfo

FORMAT: Final = 1
"""Of the entries. It never changes silently: old journals must stay readable."""
NOTHING: Final = Raw(b"null")


class Began(Struct, array_like=True, frozen=True, gc=False, tag="b"):
    """The first entry of every run: the baseline that later versions are told apart by."""

    format: int
    version: int
    run: int
    at: int


class Turned(Struct, array_like=True, frozen=True, gc=False, tag="t"):
    """Time has moved on."""

    at: int


class Resolved(Struct, array_like=True, frozen=True, gc=False, tag="r"):
    """A command has its answer: `status` is that of an execution; `ref` is the execution that gave it."""

    command: int
    status: str
    output: Raw = NOTHING
    error: ErrorInfo | None = None
    ref: str | None = None
    alone: bool = False
    """What the code did next is in the row after: this one was written by the step itself."""


class Fired(Struct, array_like=True, frozen=True, gc=False, tag="f"):
    """A timer went off."""

    command: int


class Signalled(Struct, array_like=True, frozen=True, gc=False, tag="s"):
    """A message came."""

    name: str
    payload: Raw = NOTHING
    key: str | None = None
    id: str | None = None
    """Of a message whose sender waits for an answer."""


class Stopped(Struct, array_like=True, frozen=True, gc=False, tag="c"):
    """Someone wants it cancelled, or its time is up."""

    late: bool = False


class Asked(Struct, array_like=True, frozen=True, gc=False, tag="a"):
    """The code asked for something. `mark` tells one input from another, `ref` is what it became (not compared)."""

    command: int
    kind: str
    name: str
    mark: str = ""
    ref: str | None = None


class Dropped(Struct, array_like=True, frozen=True, gc=False, tag="d"):
    """The code no longer wants the answer to a command."""

    command: int


Happening = Began | Turned | Resolved | Fired | Signalled | Stopped
IssuedCommand = Asked | Dropped
Entry = Happening | IssuedCommand

_writer: Final = msgspec.json.Encoder()
_reader: Final = decoder_of(list[Entry])


def dump(entries: Iterable[Entry]) -> bytes:
    """One row of the journal."""
    return _writer.encode(list(entries))


def load(body: bytes) -> list[Entry]:
    """The entries of one row."""
    return _reader.decode(body)


def raw(data: bytes | None) -> Raw:
    """A stored value as part of an entry."""
    return NOTHING if data is None else Raw(data)


def stored(value: Raw) -> bytes | None:
    """The value that an entry holds, as it is stored elsewhere."""
    data = bytes(value)
    return None if data == b"null" else data
