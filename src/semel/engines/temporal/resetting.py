"""The past of a workflow, and going back in it."""

from __future__ import annotations

import msgspec
from msgspec import Raw
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from semel.engine.protocol import Past
from semel.engines.temporal.bridge import STEP, Made
from semel.engines.temporal.journaling import filled
from semel.engines.temporal.payloads import bytes_of
from semel.engines.temporal.reading import Reader, Seen
from semel.errors import NotFound
from semel.flow import entries
from semel.flow.entries import NOTHING


async def past(client: Client, reader: Reader, seen: Seen) -> Past:
    """What happened to a workflow since it last continued as new, as its history says: no code is needed for it."""
    execution, card = seen.info.execution, seen.card
    if card.foreign:
        raise NotFound(
            f"workflow {card.key!r} ({card.name}) is not one of Semel's: its history is Temporal's own. "
            f"See: temporal workflow show -w {card.key}"
        )
    inputs: list[bytes | None] = []
    rows: list[bytes] = []
    outputs: dict[int, Raw] = {}
    async for event in reader.events(execution.workflow_id, execution.run_id):
        if event.HasField("workflow_execution_started_event_attributes"):
            given = event.workflow_execution_started_event_attributes.input.payloads
            inputs = [bytes_of(payload) for payload in await reader.decode(list(given))]
        elif (made := await _made(reader, event)) is not None:
            if made.row != NOTHING:
                rows.append(bytes(made.row))
            if made.number:
                outputs[made.number] = made.output
    return Past(
        seen.id, card.name, card.key or execution.workflow_id, client.namespace, seen.info.task_queue, card.generation,
        seen.id, card.parent, inputs[0] if inputs else None, inputs[1] if len(inputs) > 1 else None, 0,
        tuple(entries.dump(filled(row, outputs)) for row in rows),
    )  # fmt: skip


async def _made(reader: Reader, event: HistoryEvent) -> Made | None:
    """What a local activity of Semel's left in history."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != "core_local_activity" or "result" not in marker.details:
        return None
    about = msgspec.json.decode(marker.details["data"].payloads[0].data)
    if about.get("activity_type") != STEP:
        return None
    (result,) = await reader.decode(list(marker.details["result"].payloads))
    return msgspec.json.decode(bytes_of(result) or b"[]", type=Made)


async def reset(client: Client, reader: Reader, id: str, new_id: str, commit: int) -> str:
    """Let a workflow go on from one of its rows, as a new run."""
    raise NotImplementedError
