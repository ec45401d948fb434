"""When each thing came that a workflow task brought, by the run's history.

An activation of Temporal brings what gathered since the last one: signals first, then answers, cancellation and timers
that fired. It says when it began, not when each of them came. A worker that was away finds a signal and a later timer
together, and by the activation's time alone the timer would seem to be first. The history has the order and the times;
a local activity reads them, so that a replay finds the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from semel.engines.temporal.cluster_time import cluster_time
from semel.flow.entries import Happening
from semel.flow.turn import Arrival

CANCEL: Final = "cancel"
"""The source of a cancellation: a run has one event of it."""
_ANSWERS: Final = (
    "activity_task_completed_event_attributes",
    "activity_task_failed_event_attributes",
    "activity_task_timed_out_event_attributes",
    "activity_task_canceled_event_attributes",
)
_CHILD_ENDS: Final = (
    "child_workflow_execution_completed_event_attributes",
    "child_workflow_execution_failed_event_attributes",
    "child_workflow_execution_canceled_event_attributes",
    "child_workflow_execution_timed_out_event_attributes",
    "child_workflow_execution_terminated_event_attributes",
)


class Moment(Struct, frozen=True, array_like=True):
    """An event of a history: its number, and its time in microseconds since 1970."""

    event: int
    at: int


class Look(Struct, frozen=True, omit_defaults=True):
    """Which part of a history to look at: what the workflow task brought that began with event `upto`."""

    upto: int
    signals: dict[str, int] = field(default_factory=dict)
    """How many signals of each name the run has had by then."""


class Incoming(Struct):
    """Something that came for a flow, not yet told to its code."""

    what: Happening
    at: int
    """When it came, as far as that is known."""
    row: int
    source: str | None
    """The event it came with, as `read_moments` names it; None: no event of this run, or not known which."""
    task: int
    """The event that began the workflow task which brought it."""
    task_at: int
    """When that was, by the flow's clock."""

    def arrival(self) -> Arrival:
        """As an instance takes it in."""
        return Arrival(self.at, self.what, self.row)


def signal_source(name: str, number: int) -> str:
    """The `number`th signal of a name that a run has had."""
    return f"signal {number} {name}"


def activity_source(id: str) -> str:
    """The end of an activity."""
    return f"activity {id}"


def child_source(workflow_id: str) -> str:
    """The end of a child workflow."""
    return f"child {workflow_id}"


def sort_arrivals(came: Sequence[Incoming], moments: Mapping[str, Moment], upto: int, due: int) -> list[Incoming]:
    """Put in order what came with the workflow task of event `upto`, by the events of its history.

    What came with an earlier task stays in front, what came with a later one behind. What has no event that is known
    counts as having come before the timer that is `due`: a timer can be late, an answer must not be lost.
    """

    def place(one: Incoming) -> tuple[int, int, int]:
        if one.task != upto:
            return (-1 if one.task < upto else 1), 0, 0
        found = None if one.source is None else moments.get(one.source)
        if found is None:
            one.at = min(one.at, due - 1)
            return 0, 0, 0
        one.at = cluster_time(found.at)
        return 0, one.at, found.event

    return sorted(came, key=place)


async def read_moments(events: AsyncIterator[HistoryEvent], look: Look) -> dict[str, Moment]:
    """Read a history backwards: when everything came that one workflow task brought, by its source."""
    moments: dict[str, Moment] = {}
    left = dict(look.signals)
    unknown: dict[int, Moment] = {}
    """Ends of activities by the event that scheduled them, where their ids are."""
    began: int | None = None
    async for event in events:
        if event.event_id >= look.upto:
            continue
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED and began is None:
            began = event.workflow_task_completed_event_attributes.started_event_id
        if began is not None and event.event_id <= began and not unknown:
            break
        moment = Moment(event.event_id, event.event_time.ToMicroseconds())
        if (found := unknown.pop(event.event_id, None)) is not None:
            id_ = event.activity_task_scheduled_event_attributes.activity_id
            moments.setdefault(activity_source(id_), found)
        elif began is None or event.event_id > began:
            _note(event, moment, moments, left, unknown)
    return moments


def _note(
    event: HistoryEvent, moment: Moment, moments: dict[str, Moment], left: dict[str, int], unknown: dict[int, Moment]
) -> None:
    which = event.WhichOneof("attributes") or ""
    if which == "workflow_execution_signaled_event_attributes":
        name = event.workflow_execution_signaled_event_attributes.signal_name
        moments[signal_source(name, left.get(name, 0))] = moment
        left[name] = left.get(name, 0) - 1
    elif which == "workflow_execution_cancel_requested_event_attributes":
        moments[CANCEL] = moment
    elif which in _ANSWERS:
        unknown[getattr(event, which).scheduled_event_id] = moment
    elif which in _CHILD_ENDS:
        moments.setdefault(child_source(getattr(event, which).workflow_execution.workflow_id), moment)
