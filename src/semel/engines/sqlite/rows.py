"""Many rows as two arguments of one statement: JSON for what JSON can hold, and one blob with all bytes of all rows.

SQLite then works through the rows without asking for the interpreter's lock in between. In a statement,
`bytes_at(value ->> 3)` stands for the bytes that the fourth column of a row holds. It is no function: `expand` puts
`substr` on the blob in its place, since a function written in Python would be called for every row, and SQLite's own
`unhex` is not in the libraries of Python that people have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

_BYTES_AT: Final = re.compile(r"\bbytes_at\(([^()]+)\)")
_PLACEHOLDER: Final = re.compile(r"\?(\d+)")
_END: Final = re.compile(r";\s*(?:\n|$)")
_LENGTH_BITS: Final = 32
_encode: Final = msgspec.json.Encoder().encode


def pack(rows: Sequence[Sequence[Any]]) -> tuple[str, bytes]:
    """The rows as JSON in which bytes are a number, where they begin and how long they are; and the bytes."""
    packed = []
    pieces = [b"."]  # an empty blob has no substr
    at = 2  # substr counts from 1
    for row in rows:
        values = list(row)
        for column, value in enumerate(values):
            if type(value) is bytes:
                length = len(value)
                values[column] = at << _LENGTH_BITS | length
                pieces.append(value)
                at += length
        packed.append(values)
    return _encode(packed).decode(), b"".join(pieces)


def encode_list(values: list[Any]) -> str:
    """A list that is one argument, as JSON."""
    return _encode(values).decode()


def expand(text: str) -> list[tuple[str, int]]:
    """The single statements of a query, each with how many of the arguments it takes. The blob comes last."""
    blob = _arguments(text) + 1
    mask = (1 << _LENGTH_BITS) - 1
    text = _BYTES_AT.sub(rf"substr(?{blob}, (\1) >> {_LENGTH_BITS}, (\1) & {mask})", text)
    return [(part.strip(), _arguments(part)) for part in _END.split(text) if part.strip()]


def _arguments(text: str) -> int:
    return max(map(int, _PLACEHOLDER.findall(text)), default=0)
