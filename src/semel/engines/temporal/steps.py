"""Steps that wait to be run in this process, by run and number.

A workflow lives in the sandbox, its steps run outside of it, and functions cannot go through history: this table is
where they meet. Semel is passed through the sandbox, so that both see the same one.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from semel.flow.commands import Command
from semel.flow.turn import Identity


class Place(Struct, frozen=True):
    """Where a step is found."""

    run: str
    number: int


_waiting: Final[dict[str, dict[int, tuple[Command, Identity]]]] = {}


def put(run: str, command: Command, who: Identity) -> Place:
    """Leave a step to be run."""
    _waiting.setdefault(run, {})[command.number] = (command, who)
    return Place(run, command.number)


def take(place: Place) -> tuple[Command, Identity] | None:
    """The step at a place. It stays until its run ends, since Temporal may try it again."""
    return _waiting.get(place.run, {}).get(place.number)


def forget(run: str) -> None:
    """The run has left this process."""
    _waiting.pop(run, None)
