"""Steps that wait to be run in this process.

A workflow lives in the sandbox, its steps run outside of it, and functions cannot go through history: this table is
where they meet. Semel is passed through the sandbox, so that both see the same one.
"""

from __future__ import annotations

import itertools
from typing import Final

from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.engines.temporal.arrivals import Look
from semel.flow.commands import Command
from semel.flow.entries import NOTHING
from semel.flow.turn import Identity


class Place(Struct, frozen=True, omit_defaults=True):
    """Where a step is found, and the row of the journal that is written with it."""

    room: int
    number: int = 0
    """0: there is only a row."""
    row: Raw = NOTHING
    look: Look | None = None
    """Only a question to history: when did things come?"""


read_place: Final = decoder_of(Place).decode
_waiting: Final[dict[int, dict[int, tuple[Command, Identity]]]] = {}
_ended: Final[dict[int, int]] = {}
_rooms: Final = itertools.count(1)


def room() -> int:
    """A room for the steps of one run in one worker.

    Two workers in a process may hold the same run one after the other, and a replay beside them: what one leaves is
    not the other's. Places are in no history, so that rooms need not be the same each time.
    """
    return next(_rooms)


def put(room: int, command: Command, who: Identity, row: Raw = NOTHING) -> Place:
    """Leave a step to be run."""
    _waiting.setdefault(room, {})[command.number] = (command, who)
    return Place(room, command.number, row)


def ended(room: int) -> int:
    """A step has come to its end: the how-manieth that is."""
    _ended[room] = _ended.get(room, 0) + 1
    return _ended[room]


def heard(room: int, order: int) -> None:
    """That many have ended, here or where the run was before."""
    _ended[room] = max(order, _ended.get(room, 0))


def take(place: Place) -> tuple[Command, Identity] | None:
    """The step at a place. It stays until its run ends, since Temporal may try it again."""
    return _waiting.get(place.room, {}).get(place.number)


def forget(room: int) -> None:
    """The run has left its worker."""
    _waiting.pop(room, None)
    _ended.pop(room, None)
