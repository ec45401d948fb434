"""Arguments of SQLite statements: many rows in one, and numbered parameters for Pythons that warn of them."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

NUMBERED_PLACEHOLDERS_WARN: Final = (3, 12, 0) <= sys.version_info < (3, 12, 4)
"""Later ones know that `?1` is a number and no name."""
_QUOTED_OR_NUMBERED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|--[^\n]*|/\*.*?\*/|\?(\d+)", re.DOTALL)


def with_names(sql: str, args: Sequence[Any] | Mapping[str, Any]) -> tuple[str, Sequence[Any] | Mapping[str, Any]]:
    """Write `:n1` for `?1` in a statement, and give its arguments by name. One without such numbers stays as it is."""
    if not args or isinstance(args, Mapping):
        return sql, args
    named = _named(sql)
    if named is None:
        return sql, args
    return named, {f"n{number}": value for number, value in enumerate(args, 1)}


@functools.lru_cache(maxsize=512)
def _named(sql: str) -> str | None:
    named = _QUOTED_OR_NUMBERED.sub(lambda found: f":n{found[1]}" if found[1] else found[0], sql)
    return None if named == sql else named


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
