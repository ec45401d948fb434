"""What a workflow of Temporal tells who watches its worker. Runs inside of workflows: a replay tells nothing."""

from __future__ import annotations

from temporalio import workflow

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.define.context import Running
from semel.engines.temporal.inside.attempts import AttemptInfo, Verdict
from semel.flow.instance import Instance
from semel.flow.turn import Identity, Turn
from semel.runtime.events import FromThreads


def report_turn(events: FromThreads | None, kind: str, instance: Instance, turn: Turn) -> None:
    """Tell what a turn came to. If the cluster does not take it, it is run again, and its end told once."""
    if events is None or workflow.unsafe.is_replaying() or not events.events.wants_turn(kind, turn):
        return
    info = workflow.info()
    seconds = (instance.loop.now - instance.began) / 1_000_000
    told = Turn(entries=turn.entries[:1], messages=turn.messages, hits=turn.hits, ended=turn.ended)
    turn.messages = []  # exceptions, with all that their frames hold
    events.call(events.events.report_turn, kind, instance.who, info.attempt, told, seconds, info.run_id)


def report_parked(events: FromThreads | None, kind: str, who: Identity, error: BaseException) -> None:
    """Tell that the code of a workflow or an entity cannot go on; a replay that finds the same tells it once."""
    if events is not None:
        info = ErrorInfo(type(error).__name__, str(error))
        events.call(events.events.flow_parked, kind, who, info)


def report_lost(events: FromThreads | None, queue: str, slip: AttemptInfo, verdict: Verdict) -> None:
    """Tell of an attempt whose worker died, which nobody else can tell of."""
    if events is None or workflow.unsafe.is_replaying():
        return
    running = Running(
        slip.id,
        slip.key,
        slip.name,
        "task",
        workflow.info().namespace,
        queue,
        slip.attempt,
        slip.max_attempts,
        slip.generation,
        slip.attempt,
        parent_workflow_id=slip.parent,
    )
    status = Status(verdict.status)
    if verdict.retry_in is None:
        events.call(events.events.ended, running, status, None, verdict.error)
    else:
        events.call(events.events.retried, running, status, verdict.error, verdict.retry_in)
