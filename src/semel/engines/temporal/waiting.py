"""Why a workflow waits, as the last events of its history tell: newest first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from semel.contract.times import from_micros
from semel.engines.temporal.cluster_time import cluster_time


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
