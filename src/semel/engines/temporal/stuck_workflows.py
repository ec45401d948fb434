"""Workflows that do not get on: their tasks fail or time out, and Temporal tries them again for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from temporalio.api.common.v1 import WorkflowExecution as Run
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from semel.engines.temporal.failures import decode_failure

MOST_SEEN = 100
"""So many running workflows are looked at one by one, the newest first."""
AT_A_TIME = 10
RUNNING = "ExecutionStatus = 'Running'"
REPORTED = f"{RUNNING} AND TemporalReportedProblems IS NOT NULL"
"""Newer servers mark a workflow after some failures, so that those are found however many run."""
EVENTS_BACK = 20


@dataclass(frozen=True, slots=True)
class Stuck:
    """A workflow whose task is tried again and again."""

    id: str
    type: str
    attempt: int
    why: str

    def __str__(self) -> str:
        return f"{self.id} ({self.type}), try {self.attempt}: {self.why}"


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found, and how much of it was looked at."""

    stuck: list[Stuck]
    seen: int
    running: int
    queues: Mapping[str, int]
    """The task queues of those that were seen, and how many wait there for a task."""


async def find_stuck(client: Client, reported: bool) -> Looked:
    """Look at those that the server has `reported`, if it does so, and at the newest that run."""
    found: dict[str, WorkflowExecution] = {}
    for query in (REPORTED, RUNNING) if reported else (RUNNING,):
        async for one in client.list_workflows(query, limit=MOST_SEEN, page_size=MOST_SEEN):
            found.setdefault(one.run_id, one)
    gate = asyncio.Semaphore(AT_A_TIME)

    async def look(one: WorkflowExecution) -> tuple[WorkflowExecution, DescribeWorkflowExecutionResponse | None]:
        async with gate:
            return one, await _describe(client, one)

    looked = await asyncio.gather(*(look(one) for one in found.values()))
    queues: Counter[str] = Counter()
    stuck = []
    for one, answer in looked:
        if answer is None:
            continue
        task = answer.pending_workflow_task
        waits = answer.HasField("pending_workflow_task")
        queues[one.task_queue] += waits
        if waits and task.attempt > 1:
            stuck.append(Stuck(one.id, one.workflow_type, task.attempt, await _why(client, one)))
    running = (await client.count_workflows(RUNNING)).count
    return Looked(stuck, len(found), max(running, len(found)), queues)


async def _describe(client: Client, one: WorkflowExecution) -> DescribeWorkflowExecutionResponse | None:
    """None: it has ended and gone meanwhile."""
    try:
        return (await client.get_workflow_handle(one.id, run_id=one.run_id).describe()).raw_description
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def _why(client: Client, one: WorkflowExecution) -> str:
    """The last failure in its history. Later tries of the same task leave no trace there."""
    request = GetWorkflowExecutionHistoryReverseRequest(
        namespace=client.namespace, execution=Run(workflow_id=one.id, run_id=one.run_id), maximum_page_size=EVENTS_BACK
    )
    page = await client.workflow_service.get_workflow_execution_history_reverse(request, retry=True)
    for event in page.history.events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            cause = WorkflowTaskFailedCause.Name(failed.cause).removeprefix("WORKFLOW_TASK_FAILED_CAUSE_")
            return f"{_words(cause)}: {_describe_failure(await decode_failure(failed.failure, client.data_converter))}"
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
            return "its task timed out: a worker took it and did not answer, or died"
    return "its last events do not say why"


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _describe_failure(failure: Failure) -> str:
    """The first line of the message, with the type of the error where there is one."""
    line = failure.message.strip().partition("\n")[0]
    kind = failure.application_failure_info.type
    return f"{kind}: {line}" if kind else line or "no message"
