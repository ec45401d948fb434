"""What became of each turn of an entity, as its history has it.

Elsewhere the state of an entity that rests takes the place of its journal: code may change, and what was done stays
done. Temporal would run all messages of a history again with the code of today. So each turn leaves what it came to,
as the result of a local activity, and a replay takes it from there: handlers that have ended are not run again, and
the state and the keys of an entity can be read without its code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.records import MessageConflict
from semel.engines.temporal.entity_carryover import Row
from semel.flow import entity_messages, snapshot
from semel.flow.entries import NOTHING, raw, stored
from semel.flow.turn import Reply, Turn


class EntityTurn(Struct, array_like=True, frozen=True, omit_defaults=True):
    """What a turn came to."""

    state: Raw
    """The snapshot of an entity after the last message that was done with; nothing if none was."""
    rests: bool
    """Is nothing under way? Else its code has to be run again to go on."""
    asks: bool
    """Has it asked for something? Then its code has to be run again for that, and its state is taken from here."""
    due: int | None = None
    rows: tuple[Row, ...] = ()
    forgotten: tuple[int, ...] = ()
    hits: int = 0
    overflowed: int = 0
    frees_keys: bool = False
    """Did a message that failed free its key? Not in turns that older code wrote."""
    conflicts: tuple[MessageConflict, ...] = ()

    def onto(self, turn: Turn) -> Turn:
        """A turn that says the same."""
        turn.snapshot = None if self.state == NOTHING else snapshot.load(bytes(self.state))
        turn.due, turn.hits, turn.overflowed = self.due, self.hits, self.overflowed
        turn.replies = [_reply(row) for row in self.rows]
        turn.forgotten, turn.entries = list(self.forgotten), []
        turn.conflicts = list(self.conflicts)
        return turn


_read = decoder_of(EntityTurn).decode


def written(turn: Turn) -> bytes:
    """A turn as it is written down."""
    state = turn.again or turn.snapshot
    return msgspec.json.encode(
        EntityTurn(
            raw(None if state is None else snapshot.dump(state)),
            rests(turn),
            bool(turn.commands or turn.dropped),
            turn.due,
            tuple(map(row_of, turn.replies)),
            tuple(turn.forgotten),
            turn.hits,
            turn.overflowed,
            True,
            tuple(turn.conflicts),
        )
    )


def read(data: bytes) -> EntityTurn:
    """As it was written."""
    return _read(data)


def rests(turn: Turn) -> bool:
    """Has an entity nothing under way after this turn?"""
    return turn.snapshot is not None and not turn.entries and turn.ended is None and turn.again is None


def row_of(reply: Reply) -> Row:
    """The answer to a message, as it is carried on."""
    return Row(
        reply.n, reply.key, reply.at, Raw(entity_messages.dump(reply)), reply.mark, reply.name, raw(reply.payload)
    )


def _reply(row: Row) -> Reply:
    found = entity_messages.load(bytes(row.reply))
    return Reply(row.key, found.status, found.output, found.error, row.n, row.at, row.mark, row.name, stored(row.body))


@dataclass(slots=True)
class AnsweredKeys:
    """The keys an entity has seen, with their answers."""

    rows: dict[str, Row] = field(default_factory=dict)
    """Oldest first."""
    _keys: dict[int, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    """The keys of those that are messages which failed."""

    def put(self, row: Row) -> None:
        """Among the newest."""
        self.rows.pop(row.key, None)
        self.rows[row.key], self._keys[row.n] = row, row.key
        if row.name is not None:
            self.failed.add(row.key)
        else:
            self.failed.discard(row.key)

    def drop(self, number: int) -> None:
        """Need not be kept any longer, unless its key has another answer by now."""
        key = self._keys.pop(number, None)
        if key is not None and self.rows[key].n == number:
            del self.rows[key]
            self.failed.discard(key)
