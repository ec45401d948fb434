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
from temporalio.api.history.v1 import HistoryEvent

from semel.codec import decoder_of
from semel.contract.records import MessageConflict
from semel.engines.temporal.carrying import Carried, Row, unpack
from semel.engines.temporal.chronicle import made_in
from semel.engines.temporal.payloads import bytes_of
from semel.engines.temporal.reading import CLOSED, Reader
from semel.flow import replies, snapshot
from semel.flow.entries import NOTHING, raw, stored
from semel.flow.turn import Reply, Turn


class Rest(Struct, array_like=True, frozen=True, omit_defaults=True):
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


_read = decoder_of(Rest).decode


def written(turn: Turn) -> bytes:
    """A turn as it is written down."""
    state = turn.again or turn.snapshot
    return msgspec.json.encode(
        Rest(
            raw(None if state is None else snapshot.dump(state)), rests(turn),
            bool(turn.commands or turn.dropped), turn.due, tuple(map(row_of, turn.replies)), tuple(turn.forgotten),
            turn.hits, turn.overflowed, True, tuple(turn.conflicts),
        )
    )  # fmt: skip


def read(data: bytes) -> Rest:
    """As it was written."""
    return _read(data)


def rests(turn: Turn) -> bool:
    """Has an entity nothing under way after this turn?"""
    return turn.snapshot is not None and not turn.entries and turn.ended is None and turn.again is None


def row_of(reply: Reply) -> Row:
    """The answer to a message, as it is carried on."""
    return Row(reply.n, reply.key, reply.at, Raw(replies.dump(reply)), reply.mark, reply.name, raw(reply.payload))


def _reply(row: Row) -> Reply:
    found = replies.load(bytes(row.reply))
    return Reply(row.key, found.status, found.output, found.error, row.n, row.at, row.mark, row.name, stored(row.body))


@dataclass(slots=True)
class Shelf:
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


async def state_in(reader: Reader, id: str) -> tuple[bool, bytes | None]:
    """Is there an entity, and what was it after its last message? From the end of its history on."""
    first: HistoryEvent | None = None
    async for event in reader.backwards(id):
        if first is None and event.event_type in CLOSED:
            return False, None
        first = event
        rest = await rest_in(reader, event)
        if rest is not None and rest.state != NOTHING:
            return True, bytes(rest.state)
    if first is None:
        return False, None
    carried = await beginning_in(reader, first)
    return True, None if carried is None else stored(carried.start)


async def last_in(reader: Reader, id: str, run: str) -> tuple[bytes | None, bool]:
    """What an entity was when it last rested in a run, and does it rest now? If not, a message is under way."""
    state, resting = None, True
    async for event in reader.events(id, run):
        if event.HasField("workflow_execution_started_event_attributes"):
            carried = await beginning_in(reader, event)
            state = None if carried is None else stored(carried.start)
        elif (rest := await rest_in(reader, event)) is not None:
            state, resting = stored(rest.state) or state, rest.rests
    return state, resting


async def keys_in(reader: Reader, id: str, run: str) -> tuple[Carried, bool, set[int]]:
    """The keys that a run knew when it came to its end, from its history; are those of earlier runs among them?

    And the numbers of those that it gave up, also of earlier ones.
    """
    shelf, whole, gone = Shelf(), False, set[int]()
    async for event in reader.events(id, run):
        if event.HasField("workflow_execution_started_event_attributes"):
            carried = await beginning_in(reader, event)
            whole = carried is not None
            for row in carried.rows if carried is not None else ():
                shelf.put(row)
        elif (rest := await rest_in(reader, event)) is not None:
            for row in rest.rows:
                shelf.put(row)
            for number in rest.forgotten:
                shelf.drop(number)
            gone.update(rest.forgotten)
    return Carried(list(shelf.rows.values())), whole, gone


async def rest_in(reader: Reader, event: HistoryEvent) -> Rest | None:
    """What a turn came to, if this is where it is written."""
    made = await made_in(reader, event)
    return None if made is None or made.number or made.row == NOTHING else read(bytes(made.row))


async def beginning_in(reader: Reader, event: HistoryEvent) -> Carried | None:
    """What a run began with, from its first event."""
    given = list(event.workflow_execution_started_event_attributes.input.payloads)
    inputs = [bytes_of(payload) for payload in await reader.decode(given)]
    return unpack(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
