"""Patterns of event types and sources, in which `*` stands for any characters, and an index over many of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def matches(pattern: str, text: str) -> bool:
    """Does the whole text match? `*` stands for any characters, or none; everything else for itself.

    Upper and lower case differ. There is no way to write a `*` that stands for itself, nor any other wildcard.
    Texts between two `*` are looked for from left to right and never again, so no pattern takes long.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, last = rest
    if not text.startswith(first):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, max(at, end))
        if found < 0:
            return False
        at = found + len(part)
    return at <= end and text.endswith(last)


class PatternIndex(Generic[T]):
    """Finds, among many subscriptions, those with a pattern that matches a text, without trying every pattern.

    Patterns without `*` are looked up. Of the others only those are tried whose beginning, up to their first `*`, the
    text begins with.
    """

    def __init__(self, subscriptions: Iterable[tuple[Iterable[str], T]]) -> None:
        self._values: list[T] = []
        self._exact: dict[str, list[int]] = {}
        self._globs: dict[str, list[tuple[str, int]]] = {}
        for number, (patterns, value) in enumerate(subscriptions):
            self._values.append(value)
            for pattern in dict.fromkeys(patterns):
                begin, star, _ = pattern.partition("*")
                if star:
                    self._globs.setdefault(begin, []).append((pattern, number))
                else:
                    self._exact.setdefault(pattern, []).append(number)
        self._lengths = sorted({len(begin) for begin in self._globs})

    def __len__(self) -> int:
        return len(self._values)

    def find(self, text: str) -> list[T]:
        """The values of all subscriptions that match, each once, in the order in which they were given."""
        found = set(self._exact.get(text, ()))
        for length in self._lengths:
            if length > len(text):
                break
            found.update(number for glob, number in self._globs.get(text[:length], ()) if matches(glob, text))
        return [self._values[number] for number in sorted(found)]
