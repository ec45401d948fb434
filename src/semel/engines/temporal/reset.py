"""The past of a workflow, and going back in it."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Final

import msgspec
from msgspec import structs
from temporalio.client import Client

from semel.engine.protocol import RecordedRun
from semel.engines.temporal import entity_history, run_history
from semel.engines.temporal.carryover import Carried, ForkPoint
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.memo import PUBLISHED, RESET
from semel.engines.temporal.names import execution_id
from semel.engines.temporal.payloads import memo_value
from semel.engines.temporal.start import Starter, successor_card
from semel.errors import NotFound, NotResettable
from semel.flow.fork import fork

_RESET: Final = uuid.UUID("5e3e1a51-0000-5000-8000-68656972734c")


async def past(client: Client, reader: Reader, seen: Seen, *, whole: bool = True) -> RecordedRun:
    """What happened to a workflow since it last continued as new, as its history says: no code is needed for it.

    Of an entity there is its state, and no journal of a message that is under way: NotFound, if the `whole` of it is
    wanted.
    """
    card = seen.card
    if card.foreign:
        raise NotFound(
            f"workflow {card.key!r} ({card.name}) is not one of Semel's: its history is Temporal's own. "
            f"See: temporal workflow show -w {card.key}"
        )
    execution = seen.info.execution
    if card.kind == "entity":
        state, rests = await entity_history.last_in(reader, execution.workflow_id, execution.run_id)
        if whole and seen.live and not rests:
            raise NotFound(
                f"entity {card.key!r} is in the middle of a message, and the journal of that is Temporal's own. Look "
                f"again when it rests, use semel replay, or: temporal workflow show -w {execution.workflow_id}"
            )
        return RecordedRun(
            seen.id,
            card.name,
            card.key or execution.workflow_id,
            client.namespace,
            seen.info.task_queue,
            card.generation,
            seen.id,
            card.parent,
            b"{}",
            state,
            kind="entity",
        )
    chronicle = await run_history.read(reader, execution.workflow_id, execution.run_id)
    return RecordedRun(
        seen.id,
        card.name,
        card.key or execution.workflow_id,
        client.namespace,
        seen.info.task_queue,
        card.generation,
        chronicle.carried.seed or seen.id,
        card.parent,
        chronicle.input,
        chronicle.snapshot,
        chronicle.first.base,
        chronicle.commits(),
        card.kind,
    )


async def reset(client: Client, reader: Reader, starter: Starter, id: str, commit: int, now: datetime) -> str:
    """Let a workflow go on from one of its rows, as a new execution under its key; the old one ends with that.

    The new run takes over what the old one has when that has ended: whatever came for it until then is not lost.
    """
    seen = await reader.find(id)
    if seen is None:
        raise NotFound(f"execution {id} is not known (any more): it may be past its retention.")
    card, execution = seen.card, seen.info.execution
    await _refuse(reader, seen, now)
    before = await past(client, reader, seen)
    fork(before, commit)
    carried = Carried(seed=before.seed, fork_point=ForkPoint(execution.run_id, commit))
    published = {name: value for name, value in seen.memo.items() if name.startswith(PUBLISHED)}
    memo = {RESET: True} | {name: memo_value(msgspec.json.encode(value)) for name, value in published.items()}
    # No request asked for it: what did is sent again to the execution that it began.
    after = successor_card(structs.replace(card, due=None, asked=""), card, seen.id, card.generation)
    run = await starter.launch(
        execution.workflow_id,
        seen.info.task_queue,
        before.input or b"{}",
        after,
        str(uuid.uuid5(_RESET, execution.run_id)),
        after=(await reader.execution(seen)).status,
        carried=msgspec.json.encode(carried),
        memo=memo,
    )
    if run is None:
        raise NotResettable(f"execution {id} changed while it was being reset: try again.")
    return execution_id(run, execution.workflow_id)


async def _refuse(reader: Reader, seen: Seen, now: datetime) -> None:
    card = seen.card
    if card.kind != "workflow":
        raise NotResettable(f"execution {seen.id} is a {card.kind}: only workflows have a journal to go back in.")
    execution = await reader.execution(seen)
    if execution.expires_at is not None and execution.expires_at <= now:
        raise NotResettable(
            f"execution {seen.id} is {execution.status} and past its retention: its input and journal are gone."
        )
    newest = await reader.describe(seen.info.execution.workflow_id)
    if newest is None or newest.id != seen.id:
        raise NotResettable(
            f"execution {seen.id} is {execution.status}, and a newer one has its key. See: semel explain {card.key}"
        )


async def reset_successor(reader: Reader, id: str) -> str | None:
    """The execution that one goes on as, if it was reset."""
    seen = await reader.find(id)
    newest = None if seen is None else await reader.describe(seen.info.execution.workflow_id)
    while newest is not None and newest.memo.get(RESET) and newest.card.previous:
        if newest.card.previous == id:
            return newest.id
        newest = await reader.find(newest.card.previous)
    return None
