"""The history of an entity on a cluster: its state, its keys and what it began with, read without its code."""

from __future__ import annotations

from temporalio.api.history.v1 import HistoryEvent

from semel.engines.temporal.entity_carryover import Carried, unpack
from semel.engines.temporal.entity_turns import AnsweredKeys, EntityTurn, read
from semel.engines.temporal.executions import CLOSED, Reader
from semel.engines.temporal.payloads import bytes_of
from semel.engines.temporal.run_history import made_in
from semel.flow.entries import NOTHING, stored


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
    answered, whole, gone = AnsweredKeys(), False, set[int]()
    async for event in reader.events(id, run):
        if event.HasField("workflow_execution_started_event_attributes"):
            carried = await beginning_in(reader, event)
            whole = carried is not None
            for row in carried.rows if carried is not None else ():
                answered.put(row)
        elif (rest := await rest_in(reader, event)) is not None:
            for row in rest.rows:
                answered.put(row)
            for number in rest.forgotten:
                answered.drop(number)
            gone.update(rest.forgotten)
    return Carried(list(answered.rows.values())), whole, gone


async def rest_in(reader: Reader, event: HistoryEvent) -> EntityTurn | None:
    """What a turn came to, if this is where it is written."""
    made = await made_in(reader, event)
    return None if made is None or made.number or made.row == NOTHING else read(bytes(made.row))


async def beginning_in(reader: Reader, event: HistoryEvent) -> Carried | None:
    """What a run began with, from its first event."""
    given = list(event.workflow_execution_started_event_attributes.input.payloads)
    inputs = [bytes_of(payload) for payload in await reader.decode(given)]
    return unpack(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
