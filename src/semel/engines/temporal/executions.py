"""Executions of a cluster, as the contract describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

import msgspec
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Memo, Payload, WorkflowExecution
from temporalio.api.enums.v1 import (
    EventType,
    HistoryEventFilterType,
    PendingActivityState,
    PendingWorkflowTaskState,
    WorkflowExecutionStatus,
)
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo, WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryReverseRequest,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client

from semel.contract.decision import Prior
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution
from semel.contract.times import from_micros, micros, optional
from semel.engines.temporal.calls import call, call_or_none
from semel.engines.temporal.cluster_time import cluster_time
from semel.engines.temporal.failures import decode_failure, ended_of, terminated, to_error
from semel.engines.temporal.foreign_workflows import given_of, plain_of
from semel.engines.temporal.history import Histories, alarm_in, failure_in
from semel.engines.temporal.memo import ATTEMPT, BEGUN, MEMO, ExecutionMemo, from_memo
from semel.engines.temporal.names import execution_id, kind_of, split
from semel.engines.temporal.payloads import bytes_of
from semel.flow.turn import Ended

NONDETERMINISM: Final = "[TMPRL1100]"
"""How Temporal's own words begin for code that does something else than its history says."""
CANCELLED: Final = "semel: cancelled before it began"
"""Why an execution was terminated that had not begun: it is no error."""
CLOSED = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT,
}
_RUNNING = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING
_TERMINATED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TERMINATED
_CONTINUED = WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
_ENDED = {
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_COMPLETED: Status.COMPLETED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_CANCELED: Status.CANCELLED,
    WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_TIMED_OUT: Status.TIMED_OUT,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A workflow of the cluster as it stood."""

    info: WorkflowExecutionInfo
    memo: dict[str, Any]
    details: DescribeWorkflowExecutionResponse | None = None
    kept: timedelta = timedelta(0)
    """How long its namespace keeps what has ended."""

    @property
    def first_run(self) -> str:
        """The run that its chain began with."""
        return self.info.first_run_id or self.info.execution.run_id

    @property
    def card(self) -> ExecutionMemo:
        """Its card; for what Semel did not start, one that says as much as is known, and keeps as the cluster does."""
        id_, kept = self.info.execution.workflow_id, micros(self.kept)
        return from_memo(self.memo.get(MEMO)) or ExecutionMemo(
            kind_of(id_), self.info.type.name, key=id_, retention=kept, window=kept, foreign=True
        )

    @property
    def id(self) -> str:
        """The execution."""
        return execution_id(self.first_run, self.info.execution.workflow_id)

    @property
    def closed_at(self) -> datetime:
        """When it ended."""
        return _time(self.info.close_time)

    @property
    def live(self) -> bool:
        """Has it not ended?"""
        return self.info.status == _RUNNING

    @property
    def shared(self) -> bool:
        """Has anyone else joined this run than the workflow that asked for it? See `Starter`."""
        asked = () if self.details is None else self.details.workflow_extended_info.request_id_infos.values()
        return any(one.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_OPTIONS_UPDATED for one in asked)


class Holder(Enum):
    """Who has an execution that has not ended."""

    WORKER = "worker"
    """A worker, now or before: its code may have done something."""
    QUEUE = "queue"
    """A queue, from which a worker may take it at any time without looking at whether it was asked to stop."""
    NOBODY = "nobody"
    """Nobody, and whoever takes it finds first that it was asked to stop."""


class Reader(Histories):
    """Reads one namespace."""

    def __init__(self, client: Client, kept: timedelta) -> None:
        super().__init__(client)
        self._kept = kept

    async def describe(self, id: str, run: str = "") -> Seen | None:
        """A workflow by its id in Temporal, and one of its runs; None: there is none."""
        request = DescribeWorkflowExecutionRequest(
            namespace=self._client.namespace, execution=WorkflowExecution(workflow_id=id, run_id=run)
        )
        found = await call_or_none(self._service.describe_workflow_execution(request, retry=True))
        if found is None:
            return None
        info = found.workflow_execution_info
        return Seen(info, await self._memo(info.memo), found, self._kept)

    async def find(self, execution: str) -> Seen | None:
        """By the execution's id: its newest run."""
        found = split(execution)
        if found is None:
            return None
        run, id_ = found
        newest = await self.describe(id_)
        if newest is not None and run in (newest.first_run, newest.info.execution.run_id):
            return newest
        older = await self.describe(id_, run)
        for _ in range(1000):
            if older is None or older.info.status != _CONTINUED:
                return older
            closing = await self.closing(id_, older.info.execution.run_id)
            if closing is None:
                return older
            older = await self.describe(
                id_, closing.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
            )
        return older

    async def _memo(self, memo: Memo) -> dict[str, Any]:
        names = list(memo.fields)
        payloads = await self.decode([memo.fields[name] for name in names])
        return {name: _plain(payload) for name, payload in zip(names, payloads, strict=True)}

    async def follows(self, event: HistoryEvent) -> str | None:
        """Which execution a run follows, from its first event."""
        memo = await self._memo(event.workflow_execution_started_event_attributes.memo)
        card = from_memo(memo.get(MEMO))
        return None if card is None else card.previous

    async def execution(self, seen: Seen) -> Execution:
        """The whole record."""
        info, card = seen.info, seen.card
        status, error = await self._status(seen)
        done, last, due = seen.memo.get(ATTEMPT) or (0, None, None)
        if error is None and last is not None and status.live:
            error = to_error(last)
        details = seen.details
        activity = details.pending_activities[0] if details is not None and details.pending_activities else None
        begun = status is not Status.PENDING or done > 0
        began = _time(info.start_time)
        waits = status is Status.PENDING and activity is None
        alarm = None
        if status is Status.WAITING and error is None and details is not None:
            alarm = alarm_in(await self._latest(seen, 1000))
        return Execution(
            id=seen.id,
            kind=card.kind,
            name=card.name,
            key=card.key,
            queue=info.task_queue,
            priority=card.priority,
            status=status,
            attempt=_attempt(info, status, done),
            max_attempts=card.max_attempts,
            created_at=began,
            run_at=optional(due if done else card.due) if waits else alarm,
            started_at=began if begun else None,
            finished_at=seen.closed_at if info.HasField("close_time") else None,
            retention=card.kept,
            window=card.held,
            generation=card.generation,
            previous_id=card.previous,
            worker=_worker_of(activity),
            progress=await self._progress(activity),
            cancel_requested=_cancel_requested(details),
            error=error,
            expired=False,
            parent_id=card.parent,
        )

    async def _progress(self, activity: PendingActivityInfo | None) -> str | None:
        if activity is None or not activity.heartbeat_details.payloads:
            return None
        value = _plain((await self.decode(list(activity.heartbeat_details.payloads)))[0])
        return None if value is None else str(value)

    async def _status(self, seen: Seen) -> tuple[Status, ErrorInfo | None]:
        info = seen.info
        id_, run = info.execution.workflow_id, info.execution.run_id
        if info.status == _RUNNING:
            return self._live(seen), await self._stuck(seen)
        if info.status in _ENDED:
            return _ENDED[info.status], None
        closing = await self.closing(id_, run)
        if closing is None:
            return (Status.CANCELLED if info.status == _TERMINATED else Status.FAILED), None
        ended = await self.ended(closing)
        return ended.status, ended.error

    def delayed(self, seen: Seen) -> bool:
        """Does Temporal hold it back, so that no worker can take it yet?"""
        details = seen.details
        return details is not None and not details.HasField("pending_workflow_task") and seen.info.history_length <= 1

    async def holder(self, seen: Seen) -> Holder:
        """Who has an execution that was asked to stop: a worker that may have begun with it, or nobody?"""
        details, card = seen.details, seen.card
        if details is None:
            return Holder.WORKER
        if card.kind == "task" and not card.foreign:
            waits = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
            if any(one.state != waits for one in details.pending_activities):
                return Holder.WORKER
            return Holder.QUEUE if details.pending_activities else Holder.NOBODY
        task = details.pending_workflow_task
        taken = task.state == PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED or task.attempt > 1
        if card.foreign or taken or seen.info.execution.run_id != seen.first_run:
            return Holder.WORKER
        if card.due is not None and BEGUN not in seen.memo:
            return Holder.NOBODY  # a worker may have looked at it, to wait for its time
        async for event in self.events(seen.info.execution.workflow_id, seen.info.execution.run_id):
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
                return Holder.WORKER
        return Holder.NOBODY

    def _is_fresh(self, seen: Seen) -> bool:
        """Its delay is not over, or nobody has taken this run."""
        if seen.details is None:
            return False
        later = seen.card.due is not None and not seen.card.foreign and BEGUN not in seen.memo
        return later or seen.info.history_length <= (3 if seen.details.HasField("pending_workflow_task") else 1)

    def _live(self, seen: Seen) -> Status:
        details = seen.details
        if details is None:
            return Status.RUNNING
        if seen.card.kind == "task":
            waits = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
            return Status.RUNNING if any(a.state != waits for a in details.pending_activities) else Status.PENDING
        if self._is_fresh(seen):
            return Status.PENDING
        task = details.HasField("pending_workflow_task")
        if not task or details.pending_workflow_task.attempt > 1:
            return Status.WAITING
        waits_too = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
        return Status.PENDING if details.pending_workflow_task.state == waits_too else Status.RUNNING

    async def _stuck(self, seen: Seen) -> ErrorInfo | None:
        """Why its code cannot go on, if it cannot."""
        details = seen.details
        if details is None or not details.HasField("pending_workflow_task"):
            return None
        if details.pending_workflow_task.attempt <= 1:
            return None
        failure = failure_in(await self._latest(seen, 10))
        if failure is None:
            return None
        kind = failure.application_failure_info.type
        failure = await decode_failure(failure, self._client.data_converter)
        kind = kind or ("NonDeterminism" if failure.message.startswith(NONDETERMINISM) else "WorkflowTaskFailed")
        return ErrorInfo(kind, failure.message, failure.stack_trace)

    async def _latest(self, seen: Seen, most: int) -> Sequence[HistoryEvent]:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=self._client.namespace, execution=seen.info.execution, maximum_page_size=most
        )
        found = await call_or_none(self._service.get_workflow_execution_history_reverse(request, retry=True))
        return found.history.events if found is not None else ()

    async def given(self, id: str, run: str) -> bytes | None:
        """The same as one value, as the request had it."""
        event = await self.beginning(id, run)
        if event is None:
            return None
        inputs = await self.inputs(id, run)
        card = from_memo((await self._memo(event.workflow_execution_started_event_attributes.memo)).get(MEMO))
        return given_of(inputs, foreign=card is None or card.foreign)

    async def ended(self, event: HistoryEvent) -> Ended:
        """How it ended, by its last event."""
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
                payloads = list(event.workflow_execution_completed_event_attributes.result.payloads)
                found = await self.decode(payloads)
                return Ended(Status.COMPLETED, plain_of(found[0]) if found else None)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
                failure = event.workflow_execution_failed_event_attributes.failure
                return ended_of(await self._client.data_converter.decode_failure(failure))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                why = event.workflow_execution_terminated_event_attributes.reason
                if why == CANCELLED:
                    return Ended(Status.CANCELLED)
                return terminated(why, event.workflow_execution_terminated_event_attributes.details)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
                return Ended(Status.TIMED_OUT, None, ErrorInfo("TimeoutError", "Temporal's own timeout was over"))
            case _:
                return Ended(Status.CANCELLED)

    async def wait(self, id: str, run: str) -> tuple[Ended, datetime] | None:
        """Wait for the end of an execution, whatever runs it takes; None: there is no such execution."""
        token = b""
        while True:
            request = GetWorkflowExecutionHistoryRequest(
                namespace=self._client.namespace,
                execution=WorkflowExecution(workflow_id=id, run_id=run),
                history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
                wait_new_event=True,
                skip_archival=True,
                next_page_token=token,
            )
            found = await call_or_none(self._service.get_workflow_execution_history(request, retry=True))
            if found is None:
                return None
            token = found.next_page_token
            for event in found.history.events:
                if follow := _next_run(event):
                    run, token = follow, b""
                elif event.event_type in CLOSED:
                    return await self.ended(event), _time(event.event_time)

    async def query(self, query: str) -> AsyncIterator[Seen]:
        """Workflows that the cluster's list finds, newest first."""
        token = b""
        while True:
            request = ListWorkflowExecutionsRequest(
                namespace=self._client.namespace, query=query, page_size=200, next_page_token=token
            )
            found = await call(self._service.list_workflow_executions(request, retry=True))
            for info in found.executions:
                yield Seen(info, await self._memo(info.memo), None, self._kept)
            token = found.next_page_token
            if not token:
                return

    async def first(self, query: str) -> Seen | None:
        """One of those that the cluster's list finds."""
        request = ListWorkflowExecutionsRequest(namespace=self._client.namespace, query=query, page_size=1)
        found = await call(self._service.list_workflow_executions(request, retry=True))
        for info in found.executions:
            return Seen(info, await self._memo(info.memo), None, self._kept)
        return None

    async def count(self, query: str) -> int:
        """How many the cluster's list finds."""
        request = CountWorkflowExecutionsRequest(namespace=self._client.namespace, query=query)
        return (await call(self._service.count_workflow_executions(request, retry=True))).count


def prior_of(seen: Seen, execution: Execution, adopted: bytes | None = None) -> Prior:
    """Who holds a key. `adopted` is the fingerprint of one whose card has none."""
    card = seen.card
    return Prior(
        execution.id,
        card.name,
        adopted or bytes.fromhex(card.fingerprint),
        execution.status,
        card.generation,
        execution.window_ends_at,
        card.parent,
    )


def _plain(payload: Payload) -> Any:
    data = bytes_of(payload)
    try:
        return None if data is None else msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None


def _next_run(event: HistoryEvent) -> str:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            return event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            return event.workflow_execution_failed_event_attributes.new_execution_run_id
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
            return event.workflow_execution_timed_out_event_attributes.new_execution_run_id
        case _:
            return ""


def _time(stamp: Timestamp) -> datetime:
    return from_micros(cluster_time(stamp.ToMicroseconds()))


def _worker_of(activity: PendingActivityInfo | None) -> str | None:
    """Who runs a task; nobody, while the task waits for a worker, whoever gave it back before."""
    if activity is None or activity.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED:
        return None
    return activity.last_worker_identity or None


def _attempt(info: WorkflowExecutionInfo, status: Status, done: int) -> int:
    """The number of the attempt under way or of the last one; `done` have ended before."""
    if status is Status.PENDING or info.status == _TERMINATED:
        return done
    return max(done, 1) if status is Status.CANCELLED else done + 1


def _cancel_requested(details: DescribeWorkflowExecutionResponse | None) -> bool:
    return details is not None and details.workflow_extended_info.cancel_requested
