"""Histories of a cluster: read from either end, and what they hold of a workflow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from datetime import datetime

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, HistoryEventFilterType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryReverseRequest,
)
from temporalio.client import Client

from semel.contract.times import from_micros
from semel.engines.temporal.calls import call_or_none
from semel.engines.temporal.cluster_time import cluster_time
from semel.engines.temporal.foreign_workflows import plain_of


class Histories:
    """Those of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._service = client.workflow_service

    async def decode(self, payloads: list[Payload]) -> list[Payload]:
        """Payloads without what a codec did to them."""
        codec = self._client.data_converter.payload_codec
        return payloads if codec is None or not payloads else list(await codec.decode(payloads))

    async def closing(self, id: str, run: str) -> HistoryEvent | None:
        """The last event of a closed run, without waiting for it."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=id, run_id=run),
            history_event_filter_type=HistoryEventFilterType.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT,
        )
        found = await call_or_none(self._service.get_workflow_execution_history(request, retry=True))
        return found.history.events[-1] if found is not None and found.history.events else None

    async def beginning(self, id: str, run: str) -> HistoryEvent | None:
        """The first event of a run."""
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=id, run_id=run),
            maximum_page_size=1,
        )
        found = await call_or_none(self._service.get_workflow_execution_history(request, retry=True))
        return found.history.events[0] if found is not None and found.history.events else None

    async def events(self, id: str, run: str) -> AsyncIterator[HistoryEvent]:
        """All that happened in a run, from its beginning."""
        token = b""
        while True:
            request = GetWorkflowExecutionHistoryRequest(
                namespace=self._client.namespace,
                execution=WorkflowExecution(workflow_id=id, run_id=run),
                next_page_token=token,
            )
            found = await call_or_none(self._service.get_workflow_execution_history(request, retry=True))
            if found is None:
                return
            for event in found.history.events:
                yield event
            token = found.next_page_token
            if not token:
                return

    async def backwards(self, id: str, run: str = "") -> AsyncIterator[HistoryEvent]:
        """All that happened in a run, or in the newest one, from its end."""
        token = b""
        while True:
            request = GetWorkflowExecutionHistoryReverseRequest(
                namespace=self._client.namespace,
                execution=WorkflowExecution(workflow_id=id, run_id=run),
                maximum_page_size=20,
                next_page_token=token,
            )
            found = await call_or_none(self._service.get_workflow_execution_history_reverse(request, retry=True))
            for event in found.history.events if found is not None else ():
                yield event
            if found is None or not found.next_page_token:
                return
            token = found.next_page_token

    async def inputs(self, id: str, run: str) -> list[bytes | None]:
        """What a run began with."""
        event = await self.beginning(id, run)
        if event is None:
            return []
        payloads = list(event.workflow_execution_started_event_attributes.input.payloads)
        return [plain_of(payload) for payload in await self.decode(payloads)]


def alarm_in(events: Iterable[HistoryEvent]) -> datetime | None:
    """When it goes on if nothing comes."""
    gone: set[int] = set()
    for event in events:
        match event.event_type:
            case EventType.EVENT_TYPE_TIMER_FIRED:
                gone.add(event.timer_fired_event_attributes.started_event_id)
            case EventType.EVENT_TYPE_TIMER_CANCELED:
                gone.add(event.timer_canceled_event_attributes.started_event_id)
            case EventType.EVENT_TYPE_TIMER_STARTED if event.event_id not in gone:
                wait = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
                return from_micros(cluster_time(event.event_time.ToMicroseconds())) + wait
    return None


def failure_in(events: Iterable[HistoryEvent]) -> Failure | None:
    """Why its code could not go on."""
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            return event.workflow_task_failed_event_attributes.failure
    return None
