"""What an entity carries from run to run: its snapshot, the keys that it has seen, and their answers.

It has to fit into one payload of the cluster, which takes 2 MB and no more. So there is a bound, and an order in which
things are given up beyond it: first answers, the oldest first, since a duplicate is still known for one without them;
only then keys. Whoever packs says what was given up.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.flow.entity_messages import CONFLICT, FAILED, PRIVATE
from semel.flow.entries import NOTHING, stored

MOST: Final = 1_800_000
"""Bytes of what is packed: a payload has 2 MB, and a codec may add to it."""
RAW: Final = 6_000_000
"""Bytes before they are packed: more would take longer than a workflow may think."""
NOTES: Final = (FAILED, CONFLICT)
"""How the keys of rows begin that are no answers: messages that failed without a key, and those that were refused."""
SPARE: Final = 1.1
"""So much more than needed is given up each time, so that it is enough after a few."""


class Row(Struct, array_like=True, frozen=True):
    """A key whose message was handled: its number, when, and the answer, or NOTHING if that was given up."""

    n: int
    key: str
    at: int
    reply: Raw
    mark: str | None = None
    """What the message is compared by."""
    name: str | None = None
    """Of a message that failed and freed its key: its handler."""
    body: Raw = NOTHING
    """Of such a message: its arguments, or NOTHING if there was no room for them."""

    @property
    def answer(self) -> bytes | None:
        """As it is stored; None: given up."""
        return stored(self.reply)


class Carried(Struct, array_like=True, frozen=True):
    """All of it. `start` is a snapshot; nothing where an entity has ended and another one inherits its keys."""

    rows: list[Row]
    start: Raw = NOTHING


class Packed(Struct, frozen=True):
    """A payload, and what did not fit into it."""

    data: bytes
    answers: int = 0
    keys: int = 0


def pack(rows: Sequence[Row], start: bytes | None = None, most: int = MOST) -> Packed:
    """As much as there is room for, newest first."""
    kept, answers, keys = list(rows), 0, 0
    excess = _weight(kept) - RAW
    while True:
        if excess > 0:
            kept, less = _without_answers(kept, excess)
            answers += less
            if not less:
                cut = _cut(kept, excess)
                keys, kept = keys + cut, kept[cut:]
        data = _encode(Carried(kept, NOTHING if start is None else Raw(start)))
        if len(data) <= most or not kept:
            return Packed(data, answers, keys)
        excess = round(SPARE * _weight(kept) * (1 - most / len(data))) + 1


_read: Final = decoder_of(Carried).decode


def unpack(data: bytes) -> Carried:
    """What was packed."""
    packed = msgspec.json.decode(data)["zlib"]
    return _read(zlib.decompress(b64decode(packed)))


def inherited(left: Carried) -> bytes:
    """What the next entity under the same key knows of the last one: the keys that people gave, with their answers."""
    return pack([row for row in left.rows if not row.key.startswith(PRIVATE) or row.key.startswith(NOTES)]).data


def _encode(carried: Carried) -> bytes:
    packed = b64encode(zlib.compress(msgspec.json.encode(carried))).decode()
    return msgspec.json.encode({"zlib": packed})


def _weight(rows: Sequence[Row]) -> int:
    return sum(map(_heft, rows))


def _heft(row: Row) -> int:
    return len(row.key) + 40 + len(bytes(row.reply)) + len(row.mark or "") + len(bytes(row.body))


def _without_answers(rows: list[Row], excess: int) -> tuple[list[Row], int]:
    """The same keys, the oldest ones without their answers; how many are gone."""
    kept, gone = [], 0
    for row in rows:
        if excess > 0 and row.answer is not None and not row.key.startswith(NOTES):
            excess -= len(bytes(row.reply)) + len(bytes(row.body))
            row = msgspec.structs.replace(row, reply=NOTHING, body=NOTHING)
            gone += 1
        kept.append(row)
    return kept, gone


def _cut(rows: Sequence[Row], excess: int) -> int:
    for count, row in enumerate(rows):
        if excess <= 0:
            return count
        excess -= _heft(row)
    return len(rows)
