"""Finding executions, queues and workers on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from temporalio.client import Client

from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.engine.protocol import Filter, QueueState, WorkerState
from semel.engines.temporal.names import ENTITY, TASK
from semel.engines.temporal.reading import Reader, Seen
from semel.settings import QueueSettings, Settings

_STATUS: Final = {
    Status.COMPLETED: "ExecutionStatus = 'Completed'",
    Status.FAILED: "ExecutionStatus = 'Failed'",
    Status.CANCELLED: "ExecutionStatus IN ('Canceled', 'Terminated')",
    Status.TIMED_OUT: "ExecutionStatus IN ('TimedOut', 'Failed')",
}
_KIND: Final = {
    "task": f"WorkflowId STARTS_WITH '{TASK}'",
    "entity": f"WorkflowId STARTS_WITH '{ENTITY}'",
    "workflow": f"WorkflowId NOT STARTS_WITH '{TASK}' AND WorkflowId NOT STARTS_WITH '{ENTITY}'",
}
MOST_FOLLOWED: Final = 1000


async def executions(reader: Reader, which: Filter, now: datetime) -> list[Execution]:
    """Newest first. The cluster's list may lag behind by a moment; what is found is read as it stands."""
    found: list[Execution] = []
    async for seen in reader.query(await _query(reader, which)):
        if which.before is not None and seen.id == which.before:
            continue
        whole = (
            await reader.describe(seen.info.execution.workflow_id, seen.info.execution.run_id) if seen.live else seen
        )
        if whole is None:
            continue
        one = aged(await reader.execution(whole), now)
        if which.status is None or one.status is which.status:
            found.append(one)
        if len(found) >= which.limit:
            break
    return found


async def _query(reader: Reader, which: Filter) -> str:
    clauses = ["ExecutionStatus != 'ContinuedAsNew'"]
    if which.status is not None:
        clauses.append(_STATUS.get(which.status, "ExecutionStatus = 'Running'"))
    if which.queue is not None:
        clauses.append(f"TaskQueue = {_quoted(which.queue)}")
    if which.name is not None:
        clauses.append(f"WorkflowType = {_quoted(which.name)}")
    if which.kind is not None:
        clauses.append(_KIND.get(which.kind, "WorkflowId = ''"))
    clauses += [f"SemelAttributes = {_quoted(f'{name}={value}')}" for name, value in which.attributes.items()]
    if which.before is not None:
        last = await reader.find(which.before)
        if last is not None:
            clauses.append(f"StartTime <= '{last.info.start_time.ToJsonString()}'")
    return " AND ".join(clauses)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def history(reader: Reader, id: str) -> list[Seen]:
    """Every execution under an id, newest first: each knows the one before it."""
    found: list[Seen] = []
    seen = await reader.describe(id)
    while seen is not None and len(found) < MOST_FOLLOWED:
        found.append(seen)
        previous = seen.card.previous
        seen = None if previous is None else await reader.find(previous)
    return found


async def by_run(reader: Reader, run: str) -> Seen | None:
    """By a run's id alone, which is how other tools call it."""
    async for seen in reader.query(f"RunId = {_quoted(run)}"):
        return await reader.find(seen.id)
    return None


def aged(execution: Execution, now: datetime) -> Execution:
    """What is past its retention is not shown any more, though the cluster may still have it."""
    if execution.expires_at is None or now < execution.expires_at:
        return execution
    return replace(execution, error=None, expired=True)


def attributes(seen: Seen) -> dict[str, str]:
    """The search attributes of a workflow."""
    payload = seen.info.search_attributes.indexed_fields.get("SemelAttributes")
    if payload is None:
        return {}
    import msgspec

    values = msgspec.json.decode(payload.data)
    pairs = (value.partition("=") for value in (values if isinstance(values, list) else [values]))
    return {name: value for name, _, value in pairs}


async def configure(client: Client, queues: Mapping[str, QueueSettings]) -> None:
    """Limits of queues."""


async def queues(client: Client, settings: Settings) -> list[QueueState]:
    """Queues and what is in them."""
    return []


async def workers(client: Client, settings: Settings) -> list[WorkerState]:
    """Who polls."""
    return []
