"""What can be done to an execution from outside."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import datetime

import msgspec
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    RequestCancelWorkflowExecutionRequest,
    SignalWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.common import RawValue

from semel.contract.lifecycle import RELEASED, Status
from semel.contract.records import Execution
from semel.engines.temporal import interceptors, run_history
from semel.engines.temporal.calls import call_or_none
from semel.engines.temporal.executions import CANCELLED, Holder, Reader, Seen
from semel.engines.temporal.memo import PUBLISHED, ExecutionMemo
from semel.engines.temporal.names import execution_id, split
from semel.engines.temporal.payloads import wrap
from semel.engines.temporal.start import Starter
from semel.errors import InvalidValue, NotRedrivable


async def cancel(client: Client, reader: Reader, id: str) -> Status | None:
    """Cancel what waits, ask what runs to stop; the status afterwards."""
    seen = await reader.find(id)
    if seen is None:
        return None
    execution = await reader.execution(seen)
    if execution.status.terminal:
        return execution.status
    if seen.card.foreign and reader.delayed(seen):
        await _end(client, seen, CANCELLED)  # asked to stop, it would begin at once
        return await _status_after(reader, id)
    request = RequestCancelWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=seen.info.execution.workflow_id),
        first_execution_run_id=seen.first_run,
        identity=client.identity,
        request_id=str(uuid.uuid4()),
    )
    if await call_or_none(client.workflow_service.request_cancel_workflow_execution(request, retry=True)) is None:
        return await _status_after(reader, id)
    if execution.status is Status.PENDING:
        return await _end_unbegun(client, reader, id)
    return Status.RUNNING


async def _end_unbegun(client: Client, reader: Reader, id: str) -> Status | None:
    """End what was asked to stop and is with no worker: it cannot wait for its code, nobody might ever serve it.

    Only after it was asked: a worker that takes it from now on finds that first, and does not begin. What a worker has
    taken before hears of it and may clean up.
    """
    for pause in (0.02, 0.05, 0.1, 0.2, 0.4, 0.4, 0.4, 0.4, 0.0):
        seen = await reader.find(id)
        if seen is None or not seen.live:
            break
        match await reader.holder(seen):
            case Holder.WORKER:
                return Status.RUNNING
            case Holder.QUEUE if pause:
                await asyncio.sleep(pause)  # its workflow takes the task back from the queue, if a worker is there
            case _:
                await _end(client, seen, CANCELLED)
    return await _status_after(reader, id)


async def terminate(client: Client, reader: Reader, id: str, why: str) -> Status | None:
    """End it at once."""
    seen = await reader.find(id)
    if seen is None:
        return None
    if seen.card.kind == "task":
        raise InvalidValue(f"execution {id} is a task, which cannot be terminated: cancel it.")
    if seen.live:
        await _end(client, seen, why)
        await _close(client, reader, seen)
    return await _status_after(reader, id)


async def _close(client: Client, reader: Reader, seen: Seen) -> None:
    """Its children go the way that was agreed: it cannot see to that any more."""
    if seen.card.foreign:
        return
    chronicle = await run_history.read(reader, seen.info.execution.workflow_id, seen.info.execution.run_id)
    bound_children = chronicle.bound_children()
    for (
        start
    ) in chronicle.starts.values():  # not answered: a worker that starts it from now on finds that its parent ended
        child = await reader.describe(start.workflow_id)
        if child is not None and child.card.asked == start.request_id:
            bound_children[child.id] = start.on_close
    await let_go(client, reader, bound_children)


async def let_go(client: Client, reader: Reader, bound_children: Mapping[str, str]) -> None:
    """The workflow that asked for these does not want them any more: those end that nobody else has joined.

    Who joins one between the look and its end is too late.
    """
    for id_, how in bound_children.items():
        if await _shared(reader, id_):
            continue
        if how == "terminate":
            await terminate(client, reader, id_, "its parent has ended")
        else:
            await cancel(client, reader, id_)


async def _shared(reader: Reader, id: str) -> bool:
    """By what its last run says, and its first: a run in between is not asked."""
    seen = await reader.find(id)
    if seen is None or seen.shared or seen.info.execution.run_id == seen.first_run:
        return seen is not None and seen.shared
    first = await reader.describe(seen.info.execution.workflow_id, seen.first_run)
    return first is not None and first.shared


async def _end(client: Client, seen: Seen, why: str) -> None:
    request = TerminateWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=seen.info.execution.workflow_id),
        first_execution_run_id=seen.first_run,
        reason=why,
        identity=client.identity,
    )
    await call_or_none(client.workflow_service.terminate_workflow_execution(request, retry=True))


async def _status_after(reader: Reader, id: str) -> Status | None:
    seen = await reader.find(id)
    return None if seen is None else (await reader.execution(seen)).status


async def signal(
    client: Client, reader: Reader, id: str, name: str, payload: bytes | None, key: str | None
) -> Status | None:
    """Hand over a signal; a key makes sending it twice harmless."""
    seen = await reader.find(id)
    if seen is None:
        return None
    if seen.card.kind == "task":
        raise InvalidValue(f"execution {id} is a task, and a task takes no signals: send them to a workflow.")
    if seen.card.kind == "entity":
        raise InvalidValue(f"execution {id} is an entity, which takes messages: app.entity(…).send(…).")
    if not seen.live:
        return (await reader.execution(seen)).status
    request = SignalWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=seen.info.execution,
        signal_name=name,
        identity=client.identity,
        request_id=str(uuid.uuid4()),
    )
    status: Status | None = None

    async def send() -> None:
        nonlocal status
        status = await _deliver(client, reader, id, request)

    await interceptors.signal(client, request, _arguments(seen, payload, key), send)
    return status


async def _deliver(client: Client, reader: Reader, id: str, request: SignalWorkflowExecutionRequest) -> Status | None:
    for _ in range(20):
        if await call_or_none(client.workflow_service.signal_workflow_execution(request, retry=True)) is not None:
            break
        seen = await reader.find(id)  # it has ended, or gone on as a new run
        if seen is None:
            return None
        if not seen.live:
            return (await reader.execution(seen)).status
        request.workflow_execution.CopyFrom(seen.info.execution)
    return Status.RUNNING


def _arguments(seen: Seen, payload: bytes | None, key: str | None) -> list[RawValue]:
    """A workflow of Semel's takes the key as a second argument; another takes what its handler declares."""
    if not seen.card.foreign:
        return [wrap(payload)] if key is None else [wrap(payload), wrap(msgspec.json.encode(key))]
    if key is not None:
        raise InvalidValue(
            f"dedup_key={key!r}: workflow {seen.card.key!r} ({seen.card.name}) is not one of Semel's, and keeps no "
            "keys. Send the key inside of the payload, and let its handler ask a semel.contract.DedupWindow."
        )
    return [] if payload is None else [wrap(payload)]


async def published(reader: Reader, id: str, name: str) -> bytes | None:
    """A value that a workflow has published."""
    seen = await reader.find(id)
    if seen is None or PUBLISHED + name not in seen.memo:
        return None
    return msgspec.json.encode(seen.memo[PUBLISHED + name])


async def redrive(starter: Starter, reader: Reader, id: str, now: datetime) -> str | None:
    """Run a failed one again under its id; None: it did not fail, or its key has moved on."""
    seen = await reader.find(id)
    found = split(id)
    if seen is None or found is None:
        return None
    execution = await reader.execution(seen)
    newest = await reader.describe(found[1])
    if execution.status not in RELEASED or newest is None or newest.id != execution.id:
        return None
    if _gone(execution, now):
        return None
    card = seen.card
    if not card.fingerprint:
        raise NotRedrivable(
            f"execution {id} was not started by Semel, which does not know on what terms it ran: start it "
            "again as you did."
        )
    given = await reader.given(found[1], found[0])
    if given is None:
        return None
    again = ExecutionMemo(
        card.kind,
        card.name,
        card.fingerprint,
        card.key,
        priority=card.priority,
        max_attempts=card.max_attempts,
        retention=card.retention,
        window=card.window,
        timeout=card.timeout,
        root=card.root or (id if card.key is None else None),
        parent=card.parent,
        concurrency_key=card.concurrency_key,
        foreign=card.foreign,
        ledger=card.ledger,
    )
    run = await starter.follow(found[1], seen.info.task_queue, given, again, newest, execution.status, card.generation)
    return None if run is None else execution_id(run, found[1])


def _gone(execution: Execution, now: datetime) -> bool:
    return execution.expires_at is not None and execution.expires_at <= now
