"""Runs today's code against a Temporal history, without a worker; nothing is written or performed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import msgspec
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from semel.define.entity import Entity
from semel.define.registry import Registry
from semel.define.workflow import Workflow
from semel.engine.protocol import Replayed
from semel.engines.temporal import reset
from semel.engines.temporal.coverage import Coverage
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.inside.classes import class_of
from semel.engines.temporal.inside.host import FlowHost
from semel.engines.temporal.inside.key_reservation import RESERVE, SETTLE
from semel.engines.temporal.names import execution_id
from semel.engines.temporal.payloads import uncover, wrap_json
from semel.engines.temporal.sandbox import runner
from semel.engines.temporal.worker_requests import CLOSE, START
from semel.errors import NonDeterminism
from semel.flow.replay import try_replay as try_journal
from semel.settings import Settings

SHOWN = 120
"""Characters of an input that an error shows."""
DERIVED = frozenset({"fingerprint"})
"""What is made of the arguments, in the request for a child or a task whose key is taken."""
NEXT = "Deploy code that does what the history says, or put the change behind ctx.patched('…')."


@dataclass(frozen=True, slots=True)
class Again:
    """What came of a replay."""

    told: Replayed
    host: FlowHost | None
    """Where the code ran; None: it did not begin, or it was a task."""

    @property
    def error(self) -> str:
        """Why a worker with this code would not go on; empty if it would."""
        return self.told.error


async def replay(
    history: WorkflowHistory, registry: Registry, settings: Settings, namespace: str, coverage: Coverage | None = None
) -> Again:
    """Do again what a history says: would a worker with this code go on with it?

    What the code asks for is compared with the journal in the history, as workers do it; what goes out to Temporal is
    compared with what went out then, and that they do not do.
    """
    begun = history.events[0].workflow_execution_started_event_attributes
    name = begun.workflow_type.name
    id_ = execution_id(begun.first_execution_run_id, history.workflow_id)
    witness = ReplayRecorder()
    replayer = Replayer(
        workflows=[class_of(registry, registry[name], settings, coverage)],
        workflow_runner=runner(registry, DataConverter.default),
        namespace=namespace,
        interceptors=[witness.interceptor()],
    )
    failure = (await replayer.replay_workflow(history, raise_on_replay_failure=False)).replay_failure
    return Again(_compare(Replayed(id_, name, history.workflow_id), history, witness, failure), witness.host)


def _compare(one: Replayed, history: WorkflowHistory, witness: ReplayRecorder, failure: Exception | None) -> Replayed:
    if (known := witness.mismatch) is not None:
        return replace(one, error=known.message, expected=known.expected, found=known.found, where=known.where)
    then, now = recorded(history), witness.deeds
    expected, found = _other_deeds(then, now) if failure is not None else _other_inputs(then, now)
    if failure is None and not expected:
        return one
    why = f"its history says {expected}, its code now does {found}{f' ({failure})' if failure else ''}"
    text = f"{one.key!r} ({one.name}) cannot go on: {why}. {NEXT}"
    return replace(one, error=text, expected=expected, found=found)


async def try_replay(
    client: Client, reader: Reader, id: str, registry: Registry, settings: Settings, coverage: Coverage
) -> Replayed | None:
    """The same for what an execution has recorded. None: there is no such execution, or no code for it.

    Once with the journal in its history, which tells lines, or with its state; once with all that Temporal compares.
    """
    seen = await reader.find(id)
    if seen is None or not isinstance(registry.get(seen.card.name), Workflow | Entity):
        return None
    past = await reset.past(client, reader, seen, whole=False)
    if past.input is None:
        return None
    replayed = try_journal(registry, settings, past, coverage.refusal_inside)
    if not replayed.ok:
        return replayed
    again = await replay(await history_of(client, seen), registry, settings, client.namespace, coverage)
    return replace(again.told, key=past.key)


async def history_of(client: Client, seen: Seen) -> WorkflowHistory:
    """What happened in one run of a workflow, without what a codec did to it."""
    execution = seen.info.execution
    history = await client.get_workflow_handle(execution.workflow_id, run_id=execution.run_id).fetch_history()
    codec = client.data_converter.payload_codec
    if codec is not None:
        for event in history.events:
            await uncover(event, codec)
    return history


def _other_deeds(then: Sequence[IssuedCommand], now: Sequence[IssuedCommand]) -> tuple[str, str]:
    """The first thing that is on one side only, for each side."""
    done, said = {(d.kind, d.id) for d in now}, {(d.kind, d.id) for d in then}
    expected = next((d for d in then if (d.kind, d.id) not in done), None)
    found = next((d for d in now if (d.kind, d.id) not in said), None)
    return str(expected or "nothing more"), str(found or "nothing more")


def _other_inputs(then: Iterable[IssuedCommand], now: Iterable[IssuedCommand]) -> tuple[str, str]:
    """The first thing that is asked for with something else than before. What comes after the history is new."""
    done: defaultdict[tuple[str, str], list[IssuedCommand]] = defaultdict(list)
    for deed in now:
        done[deed.kind, deed.id].append(deed)
    for deed in then:
        same = done[deed.kind, deed.id]
        if not same:
            continue
        one = same.pop(0)
        if one.name != deed.name or not _covers(one.input, deed.input):
            return _with_input(deed), _with_input(one)
    return "", ""


def _covers(now: Sequence[bytes], then: Sequence[bytes]) -> bool:
    """Are they alike, but for arguments that only one of them names? Those hold their defaults: the journal says so."""
    return len(now) == len(then) and all(
        new == old or _holds(_read(new), _read(old)) for new, old in zip(now, then, strict=True)
    )


def _read(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data  # other people's, in a form of their own


def _holds(now: Any, then: Any) -> bool:
    if isinstance(now, dict) and isinstance(then, dict):
        return all(_holds(now[name], then[name]) for name in now.keys() & then.keys() - DERIVED)
    return bool(now == then)


def _with_input(deed: IssuedCommand) -> str:
    shown = ", ".join(data.decode(errors="replace") for data in deed.input)
    return f"{deed} with {shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}"


OWN_WORDS: Final = (CLOSE, START, RESERVE, SETTLE)
"""Activities whose input is in Semel's own words, which may change from release to release. What is started is in the
history before it: a start that goes through a worker was refused as a child. A key is reserved with the name of the
task queue, which no replay knows."""


@dataclass(frozen=True, slots=True)
class IssuedCommand:
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


def recorded(history: WorkflowHistory) -> list[IssuedCommand]:
    """What a history says was asked for, in its order."""
    return [deed for event in history.events if (deed := _recorded(event)) is not None]


def _recorded(event: HistoryEvent) -> IssuedCommand | None:
    match event.WhichOneof("attributes"):
        case "activity_task_scheduled_event_attributes":
            task = event.activity_task_scheduled_event_attributes
            input_ = _data(task.input.payloads) if task.activity_type.name not in OWN_WORDS else ()
            return IssuedCommand("task", task.activity_id, task.activity_type.name, input_)
        case "marker_recorded_event_attributes":
            return _step(event)
        case "start_child_workflow_execution_initiated_event_attributes":
            child = event.start_child_workflow_execution_initiated_event_attributes
            return IssuedCommand("workflow", child.workflow_id, child.workflow_type.name, _data(child.input.payloads))
        case "signal_external_workflow_execution_initiated_event_attributes":
            sent = event.signal_external_workflow_execution_initiated_event_attributes
            return IssuedCommand(
                "signal", sent.workflow_execution.workflow_id, sent.signal_name, _data(sent.input.payloads)
            )
        case "workflow_execution_continued_as_new_event_attributes":
            again = event.workflow_execution_continued_as_new_event_attributes
            return IssuedCommand("continuing as new", "", again.workflow_type.name, _data(again.input.payloads))
        case _:
            return None


def _step(event: HistoryEvent) -> IssuedCommand | None:
    """A step, from the marker that its result is in. Its input is in no history, but its id tells inputs apart."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != "core_local_activity":
        return None
    about = msgspec.json.decode(marker.details["data"].payloads[0].data)
    return IssuedCommand("step", about["activity_id"], about["activity_type"])


def _data(payloads: Sequence[Payload]) -> tuple[bytes, ...]:
    return tuple(payload.data for payload in payloads)


def _given(args: Sequence[Any]) -> tuple[bytes, ...]:
    return _data([(arg if isinstance(arg, RawValue) else wrap_json(arg)).payload for arg in args])


@dataclass(slots=True)
class ReplayRecorder:
    """Watches one replay: who ran, and what the code asked for."""

    host: FlowHost | None = None
    deeds: list[IssuedCommand] = field(default_factory=list)
    mismatch: NonDeterminism | None = None
    """What Semel itself found out, by the journal in the history."""

    def interceptor(self) -> Interceptor:
        """To be given to Temporal."""
        return _Watching(self)

    def saw(self, kind: str, id: str, name: str, args: Sequence[Any] = ()) -> None:
        """The code asks for this."""
        self.deeds.append(IssuedCommand(kind, id, name, _given(args)))


class _Watching(Interceptor):
    def __init__(self, witness: ReplayRecorder) -> None:
        self._witness = witness

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return type("Inbound", (_Inbound,), {"witness": self._witness})


class _Inbound(WorkflowInboundInterceptor):
    witness: ReplayRecorder

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
    def __init__(self, next: WorkflowOutboundInterceptor, witness: ReplayRecorder) -> None:
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
