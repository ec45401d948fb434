"""What a workflow asked its cluster for: as its history has it, and as the code does it while it is replayed.

Temporal compares the kind, the order and the ids of commands when it replays, and not what goes into them. Both sides
are brought into one form here, so that `replaying` can compare the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from semel.engines.temporal.bridge import CLOSE, START
from semel.engines.temporal.payloads import wrap_json
from semel.engines.temporal.reserving import RESERVE, SETTLE
from semel.errors import NonDeterminism

if TYPE_CHECKING:
    from semel.engines.temporal.hosting import FlowHost

OWN_WORDS: Final = (CLOSE, START, RESERVE, SETTLE)
"""Activities whose input is in Semel's own words, which may change from release to release. What is started is in the
history before it: a start that goes through a worker was refused as a child. A key is reserved with the name of the
task queue, which no replay knows."""


@dataclass(frozen=True, slots=True)
class Deed:
    """One thing that was asked for. `kind` and `id` say which, `input` with what."""

    kind: str
    id: str
    name: str
    input: tuple[bytes, ...] = ()

    def __str__(self) -> str:
        number, _, rest = self.id.partition(":")
        name, _, mark = rest.rpartition(":")
        match self.kind:
            case "task" | "step" if number.isdigit() and rest:
                return f"{self.kind} {name!r} (command {number}{f', input {mark}' if mark else ''})"
            case "workflow" | "signal":
                return f"{self.kind} {self.name!r} for {self.id!r}"
            case _:
                return f"{self.kind} {self.name!r}"


def recorded(history: WorkflowHistory) -> list[Deed]:
    """What a history says was asked for, in its order."""
    return [deed for event in history.events if (deed := _recorded(event)) is not None]


def _recorded(event: HistoryEvent) -> Deed | None:
    match event.WhichOneof("attributes"):
        case "activity_task_scheduled_event_attributes":
            task = event.activity_task_scheduled_event_attributes
            input_ = _data(task.input.payloads) if task.activity_type.name not in OWN_WORDS else ()
            return Deed("task", task.activity_id, task.activity_type.name, input_)
        case "marker_recorded_event_attributes":
            return _step(event)
        case "start_child_workflow_execution_initiated_event_attributes":
            child = event.start_child_workflow_execution_initiated_event_attributes
            return Deed("workflow", child.workflow_id, child.workflow_type.name, _data(child.input.payloads))
        case "signal_external_workflow_execution_initiated_event_attributes":
            sent = event.signal_external_workflow_execution_initiated_event_attributes
            return Deed("signal", sent.workflow_execution.workflow_id, sent.signal_name, _data(sent.input.payloads))
        case "workflow_execution_continued_as_new_event_attributes":
            again = event.workflow_execution_continued_as_new_event_attributes
            return Deed("continuing as new", "", again.workflow_type.name, _data(again.input.payloads))
        case _:
            return None


def _step(event: HistoryEvent) -> Deed | None:
    """A step, from the marker that its result is in. Its input is in no history, but its id tells inputs apart."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != "core_local_activity":
        return None
    about = msgspec.json.decode(marker.details["data"].payloads[0].data)
    return Deed("step", about["activity_id"], about["activity_type"])


def _data(payloads: Sequence[Payload]) -> tuple[bytes, ...]:
    return tuple(payload.data for payload in payloads)


def _given(args: Sequence[Any]) -> tuple[bytes, ...]:
    return _data([(arg if isinstance(arg, RawValue) else wrap_json(arg)).payload for arg in args])


@dataclass(slots=True)
class Witness:
    """Watches one replay: who ran, and what the code asked for."""

    host: FlowHost | None = None
    deeds: list[Deed] = field(default_factory=list)
    mismatch: NonDeterminism | None = None
    """What Semel itself found out, by the journal in the history."""

    def interceptor(self) -> Interceptor:
        """To be given to Temporal."""
        return _Watching(self)

    def saw(self, kind: str, id: str, name: str, args: Sequence[Any] = ()) -> None:
        """The code asks for this."""
        self.deeds.append(Deed(kind, id, name, _given(args)))


class _Watching(Interceptor):
    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return type("Inbound", (_Inbound,), {"witness": self._witness})


class _Inbound(WorkflowInboundInterceptor):
    witness: Witness

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self.witness))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        self.witness.host = getattr(workflow.instance(), "host", None)
        try:
            return await super().execute_workflow(input)
        except NonDeterminism as error:
            self.witness.mismatch = error
            raise


class _Outbound(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, witness: Witness) -> None:
        super().__init__(next)
        self._witness = witness

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        handle = super().start_activity(input)
        args = input.args if input.activity not in OWN_WORDS else ()
        self._witness.saw("task", input.activity_id or _number(handle), input.activity, args)
        return handle

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        handle = super().start_local_activity(input)
        self._witness.saw("step", input.activity_id or _number(handle), input.activity)
        return handle

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        self._witness.saw("workflow", input.id, input.workflow, input.args)
        return await super().start_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
        self._witness.saw("signal", input.workflow_id, input.signal, input.args)
        await super().signal_external_workflow(input)

    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        self._witness.saw("continuing as new", "", input.workflow or workflow.info().workflow_type, input.args)
        super().continue_as_new(input)


def _number(handle: object) -> str:
    """The id that Temporal gives to an activity which has none: its number."""
    return str(getattr(handle, "_seq", ""))
