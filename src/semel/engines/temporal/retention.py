"""Retention: a cluster keeps everything for as long as its namespace says; what is to be kept for less is deleted."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client

from semel.contract.retention import Retention, RetentionAction, retention_action
from semel.engines.temporal.calls import call_or_none
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.lists import quoted
from semel.engines.temporal.memo import KEPT, kept_mark
from semel.engines.temporal.names import ATTRIBUTE

AT_ONCE: Final = 20
GONE_WITHIN: Final = 1.0
"""Seconds to wait until the cluster has really dropped what it was told to; it may take its time."""


async def clean(client: Client, reader: Reader, now: datetime) -> int:
    """Delete what is past its retention and its window, in small batches; how many executions were looked at.

    What is past its retention only stays, since its key has to be known, and is not shown any more.
    """
    looked, last, parents = 0, list[Seen](), dict[str, bool]()
    for kept in KEPT:
        batch: list[Seen] = []
        before = (now - kept).astimezone(UTC).isoformat().replace("+00:00", "Z")
        async for seen in reader.query(
            f"{ATTRIBUTE} = {quoted(kept_mark(kept))} AND CloseTime < '{before}' "
            "AND ExecutionStatus NOT IN ('Running', 'ContinuedAsNew')"
        ):
            looked += 1
            if _over(seen, now) and not await _is_asked_for(reader, seen, parents):
                batch.append(seen)
            if len(batch) == AT_ONCE:
                await _delete_all(client, reader, batch)
                last, batch = batch, []
        await _delete_all(client, reader, batch)
        last = batch or last
    await _until_gone(reader, last)
    return looked


def _over(seen: Seen, now: datetime) -> bool:
    card = seen.card
    return (
        retention_action(Retention(card.kept, card.held), seen.closed_at, card.key is not None, now)
        is RetentionAction.FORGET
    )


async def _is_asked_for(reader: Reader, seen: Seen, parents: dict[str, bool]) -> bool:
    """Is one of the workflows open that it was asked for by? It may still want to know. `parents`: those looked at."""
    parent = seen.card.parent
    if parent is None:
        return False
    if parent not in parents:
        parents[parent] = False  # whatever people have done to memos, this ends
        found = await reader.find(parent)
        parents[parent] = found is not None and (found.live or await _is_asked_for(reader, found, parents))
    return parents[parent]


async def _delete_all(client: Client, reader: Reader, batch: list[Seen]) -> None:
    await asyncio.gather(*(_delete(client, reader, seen) for seen in batch))


async def _delete(client: Client, reader: Reader, seen: Seen) -> None:
    """All its runs: one that continued as new has several."""
    runs = [seen.info.execution.run_id]
    if seen.first_run != seen.info.execution.run_id:
        id_ = quoted(seen.info.execution.workflow_id)
        others = reader.query(f"WorkflowId = {id_} AND ExecutionStatus = 'ContinuedAsNew'")
        runs += [one.info.execution.run_id async for one in others if one.first_run == seen.first_run]
    for run in runs:
        execution = WorkflowExecution(workflow_id=seen.info.execution.workflow_id, run_id=run)
        request = DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=execution)
        await call_or_none(client.workflow_service.delete_workflow_execution(request, retry=True))


async def _until_gone(reader: Reader, batch: list[Seen]) -> None:
    end = time.monotonic() + GONE_WITHIN
    left = [seen.info.execution for seen in batch]
    while left and time.monotonic() < end:
        found = await reader.describe(left[-1].workflow_id, left[-1].run_id)
        if found is None:
            left.pop()
        else:
            await asyncio.sleep(0.02)
