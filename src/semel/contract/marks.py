"""What a keyed message is compared by: its name and a hash of each argument, small enough to be kept with its key.

    1 add-points points:Qk3v9a_0 reason:0a-Zl1mB

An entity remembers thousands of keys and carries them along, so that it cannot keep the messages themselves. With a
hash for each argument it can still say which ones differ, and leave out those that equal their default.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

FORMAT: Final = "1"
"""Marks of another format are not compared: their keys count alone."""
MOST_FIELDS: Final = 8
"""Of more arguments there is one hash for all of them."""
WHOLE: Final = "*"
_HASH_BYTES: Final = 6
_NO_ARGUMENTS: Final = b"{}"
_encode: Final = msgspec.json.Encoder().encode


class MarkDifference(Struct, frozen=True):
    """How two messages under one key differ."""

    held: str
    """The name of the handler or signal that has the key."""
    offered: str
    """The name of the one that was refused."""
    fields: tuple[str, ...] = ()
    """Arguments that differ; empty if the names do, or if it is not known."""

    def __str__(self) -> str:
        if self.held != self.offered:
            return f"{self.held!r} -> {self.offered!r}"
        return f"{self.held!r} with other arguments" + (f": {', '.join(self.fields)}" if self.fields else "")


def field_hash(data: bytes) -> str:
    """The hash of one argument in canonical JSON: eight characters."""
    return urlsafe_b64encode(hashlib.blake2b(data, digest_size=_HASH_BYTES).digest()).decode()


def message_mark(name: str, payload: bytes) -> str:
    """The mark of a message to an entity; `payload` is canonical JSON of its arguments by name."""
    if payload == _NO_ARGUMENTS:
        return f"{FORMAT} {name}"
    fields: dict[str, Any] = msgspec.json.decode(payload)
    if len(fields) > MOST_FIELDS:
        return signal_mark(name, payload)
    return " ".join((FORMAT, name, *[f"{field}:{field_hash(_encode(value))}" for field, value in fields.items()]))


def signal_mark(name: str, payload: bytes) -> str:
    """The mark of a signal, whose payload is one value."""
    return f"{FORMAT} {name} {WHOLE}:{field_hash(payload)}"


def compare_marks(
    held: str | None, offered: str | None, defaults: Mapping[str, str] | None = None
) -> MarkDifference | None:
    """How two marks differ; None: they stand for the same message, or one of them cannot be compared.

    `defaults` are the hashes of the handler's defaults: an argument that equals its default counts as left out.
    """
    if held == offered or held is None or offered is None:
        return None
    old, new = _read(held), _read(offered)
    if old is None or new is None:
        return None
    if old[0] != new[0]:
        return MarkDifference(old[0], new[0])
    before, after = _without(old[1], defaults), _without(new[1], defaults)
    if before == after:
        return None
    fields = sorted(field for field in before.keys() | after.keys() if before.get(field) != after.get(field))
    return MarkDifference(old[0], new[0], () if WHOLE in fields else tuple(fields))


def _read(mark: str) -> tuple[str, dict[str, str]] | None:
    format_, *rest = mark.split(" ")
    if format_ != FORMAT or not rest:
        return None
    pairs = (part.rpartition(":") for part in rest[1:])
    return rest[0], {field: value for field, _, value in pairs}


def _without(fields: dict[str, str], defaults: Mapping[str, str] | None) -> dict[str, str]:
    if not defaults:
        return fields
    return {field: value for field, value in fields.items() if defaults.get(field) != value}
