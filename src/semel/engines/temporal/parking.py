"""Workflows whose code cannot go on.

What happened within one task of Temporal is written down when that ends, and lost when it fails: a step before the line
that is not allowed would be run again with each try. So a workflow whose code cannot go on lets its task end first, and
has itself woken by a signal; it fails then, with nothing to lose. Code that fits finds a signal that says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

POKE: Final = "semel:poke"
"""The signal that wakes a workflow, and says nothing."""

_doors: Final[dict[str, list[Callable[[str, str], None]]]] = {}


def serve(namespace: str, poke: Callable[[str, str], None]) -> None:
    """From now on `poke(id, run)` wakes workflows of a namespace; it may be called from any thread."""
    _doors.setdefault(namespace, []).append(poke)


def leave(namespace: str, poke: Callable[[str, str], None]) -> None:
    """Stop waking workflows of a namespace by `poke`."""
    _doors[namespace].remove(poke)


def poke(namespace: str, id: str, run: str) -> bool:
    """Have a workflow woken. False: nobody here can."""
    doors = _doors.get(namespace, ())
    for door in doors:  # namespaces of one name on two servers: one of them knows it
        door(id, run)
    return bool(doors)
