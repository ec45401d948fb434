"""The past of a workflow, and going back in it."""

from __future__ import annotations

import msgspec
from msgspec import Raw
from temporalio.client import Client
from temporalio.common import RawValue

from semel.engine.protocol import Past
from semel.engines.temporal.payloads import unwrap
from semel.engines.temporal.reading import Reader, Seen
from semel.errors import NotFound

PAST = "semel:past"


async def past(client: Client, reader: Reader, seen: Seen) -> Past:
    """What happened to a workflow since it last continued as new. A worker that has its code is asked."""
    if seen.card.foreign:
        raise NotFound(
            f"workflow {seen.card.key!r} ({seen.card.name}) is not one of Semel's: its history is Temporal's own. "
            f"See: temporal workflow show -w {seen.card.key}"
        )
    execution = seen.info.execution
    inputs = await reader.inputs(execution.workflow_id, execution.run_id)
    handle = client.get_workflow_handle(execution.workflow_id, run_id=execution.run_id)
    value: RawValue = await handle.query(PAST, result_type=RawValue)
    rows, _ = msgspec.json.decode(unwrap(value) or b"[[],[]]", type=tuple[list[Raw], list[int]])
    card = seen.card
    return Past(
        seen.id, card.name, card.key or execution.workflow_id, client.namespace, seen.info.task_queue, card.generation,
        seen.id, card.parent, inputs[0] if inputs else None, inputs[1] if len(inputs) > 1 else None, 0,
        tuple(bytes(row) for row in rows),
    )  # fmt: skip


async def reset(client: Client, reader: Reader, id: str, new_id: str, commit: int) -> str:
    """Let a workflow go on from one of its rows, as a new run."""
    raise NotImplementedError
