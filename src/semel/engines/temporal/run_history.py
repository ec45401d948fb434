"""What the history of one run holds of a workflow. Only Semel's own words in it are needed, and none of the code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Raw
from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from semel.engine.protocol import RecordedRun
from semel.engine.start_request import StartRequest
from semel.engines.temporal.carryover import Carried, ForkPoint, Inheritance, load, unpack
from semel.engines.temporal.executions import Reader
from semel.engines.temporal.inside.journal import filled
from semel.engines.temporal.memo import CLOSE_MODE
from semel.engines.temporal.names import execution_id, workflow_id
from semel.engines.temporal.payloads import bytes_of
from semel.engines.temporal.worker_requests import FORK, START, STEP, StepResult, read_made, read_told, request_id_of
from semel.errors import EngineUnavailable, NotDecodable
from semel.flow import entries
from semel.flow.entries import NOTHING, Signalled, raw, stored
from semel.flow.fork import fork

OURS: Final = "semel:"
"""How the signals begin that are no workflow's business."""
_ENDED: Final = {
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED: "child_workflow_execution_completed_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_FAILED: "child_workflow_execution_failed_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_CANCELED: "child_workflow_execution_canceled_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TIMED_OUT: "child_workflow_execution_timed_out_event_attributes",
    EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_TERMINATED: "child_workflow_execution_terminated_event_attributes",
}


@dataclass(frozen=True, slots=True)
class ChildStart:
    """A child that a worker was asked to start, since its key had been used before."""

    workflow_id: str
    request_id: str
    on_close: str


@dataclass(slots=True)
class Chronicle:
    """One run."""

    run: str = ""
    input: bytes | None = None
    carried: Carried = field(default_factory=Carried)
    inherited: Inheritance | None = None
    rows: list[bytes] = field(default_factory=list)
    signals: list[Signalled] = field(default_factory=list)
    outputs: dict[int, Raw] = field(default_factory=dict)
    children: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By the event that began them: (how it goes with its parent, the execution), while they run.

    Those that a worker was asked to start stay here, since their end is no event of this run."""
    starts: dict[int, ChildStart] = field(default_factory=dict)
    """Children that a worker was asked to start, by event, while there is no answer."""
    _inheriting: set[int] = field(default_factory=set)

    @property
    def first(self) -> Carried:
        """What the rows go on from."""
        return self.carried if self.inherited is None else self.inherited.carried

    @property
    def snapshot(self) -> bytes | None:
        """The same as the flow knows it."""
        return stored(self.first.start)

    def commits(self) -> tuple[bytes, ...]:
        """Its journal."""
        before = [] if self.inherited is None else [bytes(row) for row in self.inherited.rows]
        return (*before, *(entries.dump(filled(row, self.outputs)) for row in self.rows))

    def bound_children(self) -> dict[str, str]:
        """Children that are to be closed with it, and how."""
        before = self.carried.bound_children if self.inherited is None else self.inherited.bound_children
        return {**before, **{ref: how for how, ref in self.children.values() if ref}}

    def unheard(self) -> list[Signalled]:
        """Signals that came, and that no row has taken in."""
        waiting = [*(self.inherited.signals if self.inherited else ()), *self.signals]
        for row in self.rows:
            for entry in entries.load(row):
                if isinstance(entry, Signalled) and entry in waiting:
                    waiting.remove(entry)
        return waiting


async def read(reader: Reader, id: str, run: str) -> Chronicle:
    """All that a run's history holds, with what it goes on from if it was made by a reset.

    Such a run takes that over in its first workflow task. Until a worker has run it, it is read from the run before, so
    that the children of that one are known here too.
    """
    chronicle = Chronicle(run=run)
    async for event in reader.events(id, run):
        await _read_event(chronicle, reader, event)
    if chronicle.carried.fork_point is not None and chronicle.inherited is None:
        chronicle.inherited = await inheritance(reader, id, chronicle.carried.fork_point)
    return chronicle


async def inheritance(reader: Reader, id: str, point: ForkPoint) -> Inheritance:
    """What a run that goes on from a row of another one takes over from it. EngineUnavailable while that one runs."""
    seen = await reader.describe(id, point.run)
    if seen is None or seen.live:
        raise EngineUnavailable(f"run {point.run} of {id!r} has not ended yet.")
    chronicle = await read(reader, id, point.run)
    recorded = RecordedRun(
        id, "", id, "", "", 0, "", None, chronicle.input, chronicle.snapshot, chronicle.first.base, chronicle.commits()
    )
    made = fork(recorded, point.commit)
    return Inheritance(
        Carried(chronicle.first.start, chronicle.first.base),
        [Raw(row) for row in chronicle.commits()[: point.commit - chronicle.first.base]],
        list(made.answers.values()),
        [*(signal for _, signal in made.signals), *chronicle.unheard()],
        chronicle.bound_children(),
    )


async def _read_event(chronicle: Chronicle, reader: Reader, event: HistoryEvent) -> None:
    match event.WhichOneof("attributes"):
        case "workflow_execution_started_event_attributes":
            given = await _data(reader, event.workflow_execution_started_event_attributes.input)
            chronicle.input = given[0] if given else None
            chronicle.carried = load(given[1] if len(given) > 1 else None)
        case "marker_recorded_event_attributes":
            made = await made_in(reader, event)
            if made is not None and made.row != NOTHING:
                chronicle.rows.append(bytes(made.row))
            if made is not None and made.number:
                chronicle.outputs[made.number] = made.output
        case "workflow_execution_signaled_event_attributes":
            signal = event.workflow_execution_signaled_event_attributes
            if not signal.signal_name.startswith(OURS):
                payload, key, *_ = [*await _data(reader, signal.input), None, None]
                chronicle.signals.append(
                    Signalled(signal.signal_name, raw(payload), msgspec.json.decode(key or b"null"))
                )
        case "activity_task_scheduled_event_attributes":
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            if name == FORK:
                chronicle._inheriting.add(event.event_id)
            elif name == START:
                await _read_start(chronicle, reader, event)
        case "activity_task_completed_event_attributes":
            done = event.activity_task_completed_event_attributes
            if done.scheduled_event_id in chronicle._inheriting:
                (left,) = await _data(reader, done.result)
                chronicle.inherited = unpack(left or b"{}")
            elif (start := chronicle.starts.pop(done.scheduled_event_id, None)) is not None:
                (answer,) = await _data(reader, done.result)
                if (child := read_told(answer or b"{}")).begun:
                    chronicle.children[event.event_id] = start.on_close, child.id
        case _:
            await _read_child(chronicle, reader, event)


async def _read_start(chronicle: Chronicle, reader: Reader, event: HistoryEvent) -> None:
    scheduled = event.activity_task_scheduled_event_attributes
    (data,) = await _data(reader, scheduled.input)
    try:
        asked = StartRequest.from_bytes(data or b"{}")
    except NotDecodable:  # of another release: what it began is not closed from here
        return
    if asked.on_parent_close is not None and asked.key is not None:
        id_ = workflow_id(asked.options.kind, asked.key)
        request_id = request_id_of(chronicle.run, scheduled.activity_id)
        chronicle.starts[event.event_id] = ChildStart(id_, request_id, asked.on_parent_close)


async def _read_child(chronicle: Chronicle, reader: Reader, event: HistoryEvent) -> None:
    if event.event_type == EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED:
        memo = event.start_child_workflow_execution_initiated_event_attributes.memo.fields
        if CLOSE_MODE in memo:
            (agreed,) = await reader.decode([memo[CLOSE_MODE]])
            chronicle.children[event.event_id] = str(msgspec.json.decode(bytes_of(agreed) or b'""')), ""
    elif event.event_type == EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_STARTED:
        began = event.child_workflow_execution_started_event_attributes
        if began.initiated_event_id in chronicle.children:
            how, _ = chronicle.children[began.initiated_event_id]
            ref = execution_id(began.workflow_execution.run_id, began.workflow_execution.workflow_id)
            chronicle.children[began.initiated_event_id] = how, ref
    elif event.event_type in _ENDED:
        chronicle.children.pop(getattr(event, _ENDED[event.event_type]).initiated_event_id, None)


async def made_in(reader: Reader, event: HistoryEvent) -> StepResult | None:
    """What a local activity of Semel's left in history."""
    marker = event.marker_recorded_event_attributes
    if marker.marker_name != "core_local_activity" or "result" not in marker.details:
        return None
    about = msgspec.json.decode(marker.details["data"].payloads[0].data)
    if about.get("activity_type") != STEP:
        return None
    (result,) = await _data(reader, marker.details["result"])
    return read_made(result or b"[]")


async def _data(reader: Reader, payloads: Payloads) -> list[bytes | None]:
    return [bytes_of(payload) for payload in await reader.decode(list(payloads.payloads))]
