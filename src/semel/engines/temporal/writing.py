"""Messages to entities."""

from __future__ import annotations

import asyncio
import uuid

from temporalio.api.common.v1 import Memo, Payloads, WorkflowType
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import SignalWithStartWorkflowExecutionRequest
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from semel.engine.protocol import Message, Outcome
from semel.engines.temporal.acting import ANSWER, MESSAGE, STATE
from semel.engines.temporal.calling import call, told
from semel.engines.temporal.card import card_of, to_memo
from semel.engines.temporal.names import execution_id, split, workflow_id
from semel.engines.temporal.payloads import unwrap, wrap
from semel.engines.temporal.reading import Reader
from semel.flow import replies


async def send(client: Client, message: Message, now: int, skipped: int) -> str:
    """Hand a message to an entity, which begins if it is not there: one call, both or neither."""
    start = message.start
    id_ = workflow_id("entity", start.key or "")
    encode = client.data_converter.encode
    memo = {name: (await encode([value]))[0] for name, value in to_memo(card_of(start, now, skipped=skipped)).items()}
    args = [message.name, wrap(message.payload), message.key]
    request = SignalWithStartWorkflowExecutionRequest(
        namespace=client.namespace, workflow_id=id_, workflow_type=WorkflowType(name=start.terms.name),
        task_queue=TaskQueue(name=start.terms.queue), input=Payloads(payloads=await encode([wrap(start.payload)])),
        identity=client.identity, request_id=start.id, signal_name=MESSAGE,
        workflow_id_reuse_policy=WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
        workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
        signal_input=Payloads(payloads=await encode(args)), memo=Memo(fields=memo),
    )  # fmt: skip
    answer = await call(client.workflow_service.signal_with_start_workflow_execution(request, retry=True))
    return execution_id(answer.run_id, id_)


async def answer(client: Client, id: str, key: str, timeout: float | None) -> Outcome | None:
    """Wait for the answer to the message with this key, through however many runs."""
    found = split(id)
    assert found is not None
    handle = client.get_workflow_handle(found[1])
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    value: RawValue = await handle.execute_update(
                        ANSWER, key, id=str(uuid.uuid4()), result_type=RawValue
                    )
                    return replies.load(unwrap(value) or b"null")
                except WorkflowUpdateFailedError:
                    await asyncio.sleep(0.05)  # it began a new run meanwhile
                except RPCError as error:
                    if error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.ABORTED):
                        raise told(error) from error
                    await asyncio.sleep(0.05)
    except TimeoutError:
        return None


async def state_of(client: Client, reader: Reader, key: str) -> tuple[bool, bytes | None]:
    """Is it there, and what was it after its last message?"""
    id_ = workflow_id("entity", key)
    seen = await reader.describe(id_)
    if seen is None or not seen.live:
        return False, None
    try:
        value: RawValue = await client.get_workflow_handle(id_).query(STATE, result_type=RawValue)
    except WorkflowQueryFailedError:
        return False, None
    return True, unwrap(value)
