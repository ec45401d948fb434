"""How long a filter may take at most, estimated from its syntax tree, since the library bounds neither time nor memory.

It stops after 10,000 rounds of loops, but one round may compare, search or join texts of any size, and `map()` and
`filter()` copy their whole list in each round: 9,000 entries took 11 seconds and 6 GB. So those two are refused, and of
every other filter this module says for how large an event it surely ends in good time.

The costs are in nanoseconds, from measurements, and on the safe side.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.codec import MAX_PAYLOAD
from semel.errors import InvalidValue

BUDGET: Final = 1_000_000_000.0
"""Nanoseconds that a filter may take by this estimate."""
SMALLEST: Final = 4 << 10
"""A filter that is too slow for events of so many bytes is refused."""
PATTERN_LENGTH: Final = 500

_ROUNDS: Final = 10_000
_NODE: Final = 100.0
_SCAN: Final = 3.0
_JOIN: Final = 20.0
_COMPARE: Final = 10.0
_SEARCH: Final = 0.1
_MATCH: Final = 40.0
_MATCH_SETUP: Final = 300.0
_SCALAR: Final = 8.0
_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_FREE: Final = frozenset({"_&&_", "_||_", "!_", "@not_strictly_false", "_[_]", "dyn"})
_COUNTED: Final = re.compile(r"(.)\{(\d+)(?:,(\d*))?\}", re.DOTALL)
_CLASS: Final = re.compile(r"\\[pP]")


@dataclass(frozen=True, slots=True)
class _Size:
    """Bytes of a value: the most at once, and the most over all rounds of the loops around it."""

    once: float
    total: float


@dataclass(frozen=True, slots=True)
class _Variable:
    size: _Size
    depth: int
    """How many loops are around the place where it is bound."""


class _Message:
    """A message in the wire format of Protocol Buffers: the values of each field by its number."""

    __slots__ = ("_fields",)

    def __init__(self, data: bytes) -> None:
        self._fields: dict[int, list[Any]] = {}
        at = 0
        while at < len(data):
            tag, at = _varint(data, at)
            kind = tag & 7
            value: Any
            if kind == 0:
                value, at = _varint(data, at)
            elif kind == 2:
                length, at = _varint(data, at)
                value, at = data[at : at + length], at + length
            else:
                width = {1: 8, 5: 4}[kind]
                value, at = struct.unpack_from("<q" if width == 8 else "<i", data, at)[0], at + width
            self._fields.setdefault(tag >> 3, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def number(self, number: int) -> int:
        return int(self._fields.get(number, (0,))[-1])

    def raw(self, number: int) -> bytes:
        return bytes(self._fields.get(number, (b"",))[-1])

    def text(self, number: int) -> str:
        return self.raw(number).decode()

    def message(self, number: int) -> _Message:
        return _Message(self.raw(number))

    def messages(self, number: int) -> Iterator[_Message]:
        return map(_Message, self._fields.get(number, ()))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


class SyntaxTree:
    """A compiled expression of CEL, read from what the library serialises: a `cel.expr.CheckedExpr`."""

    def __init__(self, serialized: bytes) -> None:
        checked = _Message(serialized).message(2)
        self.root = checked.message(4)
        self._scalars = {
            entry.number(1) for entry in checked.messages(3) if _is_scalar(entry.message(2)) and not _is_text(entry)
        }

    def is_scalar(self, node: _Message) -> bool:
        """Is it known to be a number, a truth value or a time?"""
        return node.number(2) in self._scalars

    def patterns(self) -> list[str]:
        """The regular expressions in it. Raises InvalidValue for one that is not written out."""
        found: list[str] = []
        for node in _walk(self.root):
            call = node.message(6)
            if 6 in node and call.text(2) == "matches":
                pattern = list(call.messages(3))[-1].message(3)
                if 6 not in pattern:
                    raise InvalidValue("matches() needs a pattern that is written out, not one from the event.")
                found.append(pattern.text(6))
        return found

    def largest_event(self) -> int:
        """The most bytes of an event for which the filter ends in good time. Raises InvalidValue if there is none."""
        size = MAX_PAYLOAD
        while size >= SMALLEST:
            if _Estimate(self, size).cost <= BUDGET:
                return size
            size = size * 3 // 4
        raise InvalidValue("it could take too long even for a small event: compare, search or nest less.")


def _is_scalar(kind: _Message) -> bool:
    return any(number in kind for number in (2, 3, 4, 5))


def _is_text(entry: _Message) -> bool:
    kind = entry.message(2)
    return kind.number(3) in (5, 6) or kind.number(4) in (5, 6)


def _walk(node: _Message) -> Iterator[_Message]:
    yield node
    for inner in _children(node):
        yield from _walk(inner)


def _children(node: _Message) -> Iterator[_Message]:
    for kind, numbers in ((5, (1,)), (6, (1, 3)), (7, (1,)), (9, (2, 4, 5, 6, 7))):
        if kind in node:
            inner = node.message(kind)
            for number in numbers:
                yield from inner.messages(number)
    for entry in node.message(8).messages(2):
        yield from entry.messages(3)
        yield from entry.messages(4)


class _Estimate:
    """What a filter costs at most for an event of so many bytes."""

    def __init__(self, tree: SyntaxTree, event: int) -> None:
        self._tree = tree
        self._event = float(event)
        self.cost = 0.0
        self._visit(tree.root, {}, 1.0, 0)

    def _visit(self, node: _Message, names: Mapping[str, _Variable], rounds: float, depth: int) -> _Size:
        self.cost += _NODE * rounds
        size = self._measure(node, names, rounds, depth)
        return _Size(_SCALAR, _SCALAR * rounds) if self._tree.is_scalar(node) else size

    def _measure(self, node: _Message, names: Mapping[str, _Variable], rounds: float, depth: int) -> _Size:
        if 3 in node:
            length = max(_SCALAR, float(len(node.message(3).raw(6)) if 6 in node.message(3) else 0))
            return _Size(length, length * rounds)
        if 4 in node:
            known = names.get(node.message(4).text(1))
            if known is None:
                return _Size(self._event, self._event * rounds)
            return known.size if known.depth == depth else _Size(known.size.once, known.size.once * rounds)
        if 5 in node:
            return self._visit(node.message(5).message(1), names, rounds, depth)
        if 6 in node:
            return self._call(node.message(6), names, rounds, depth)
        if 9 in node:
            return self._loop(node.message(9), names, rounds, depth)
        parts = [self._visit(inner, names, rounds, depth) for inner in _children(node)]
        return _Size(sum(one.once + 2 for one in parts), sum(one.total + 2 * rounds for one in parts))

    def _call(self, call: _Message, names: Mapping[str, _Variable], rounds: float, depth: int) -> _Size:
        function = call.text(2)
        nodes = [*call.messages(1), *call.messages(3)]
        given = [self._visit(one, names, rounds, depth) for one in nodes]
        everything = _Size(sum(one.once for one in given), sum(one.total for one in given))
        if function in _FREE:
            return given[0]
        if function == "_?_:_":
            return _Size(max(one.once for one in given[1:]), sum(one.total for one in given[1:]))
        if function in _COMPARISONS:
            self.cost += _COMPARE * min(one.total for one in given)
        elif function == "@in":
            self.cost += _COMPARE * given[1].total
        elif function in ("contains", "startsWith", "endsWith"):
            self.cost += given[0].total * (_SCAN + _SEARCH * given[1].once)
        elif function == "matches":
            weight = pattern_weight(nodes[-1].message(3).text(6))
            self.cost += given[0].total * _MATCH * weight + rounds * _MATCH_SETUP * (weight + 20)
        elif function == "size":
            self.cost += _SCAN * everything.total
        else:
            self.cost += _JOIN * everything.total  # it may make a new value of that size: this bounds memory, too
        return everything

    def _loop(self, loop: _Message, names: Mapping[str, _Variable], rounds: float, depth: int) -> _Size:
        entries = self._visit(loop.message(2), names, rounds, depth)
        if 7 in loop.message(4) or 8 in loop.message(4):
            raise InvalidValue(
                "map() and filter() copy their list for each entry: use exists(), all() or exists_one()."
            )
        inner = min(float(_ROUNDS), entries.total / 2)
        counter = _Variable(_Size(_SCALAR, _SCALAR * inner), depth + 1)
        bound = {
            **names,
            loop.text(1): _Variable(entries, depth + 1),
            loop.text(8): _Variable(entries, depth + 1),
            loop.text(3): counter,
        }
        for part in (5, 6):
            self._visit(loop.message(part), bound, inner, depth + 1)
        return _Size(_SCALAR, _SCALAR * rounds)


def pattern_weight(pattern: str) -> float:
    """About how many instructions a regular expression makes: for each byte of a text all of them may have to be tried.

    What is counted is repeated as often: `(a{1,30}){1,30}` is nine hundred times as much as `a`.
    """
    weight = len(pattern) + 10 * (pattern.count(".") + pattern.count("[")) + 500 * len(_CLASS.findall(pattern))
    times = 2.0 if "(?" in pattern else 1.0
    for before, least, most in _COUNTED.findall(pattern):
        count = max(1, int(most or least))
        if before in ")}":
            times *= count
        else:
            weight += 10 * count
    return weight * times
