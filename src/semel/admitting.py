"""From the engine's answer to a handle or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay
from semel.contract.lifecycle import Status
from semel.define.task import Call
from semel.engine.conflicts import conflict
from semel.engine.protocol import Admission
from semel.engine.start_request import StartRequest
from semel.errors import KeyConflict, TaskAlreadyCompleted, TaskAlreadyExists
from semel.handle import Handle

if TYPE_CHECKING:
    from semel.app import App

Batch = Call[Any] | tuple[Call[Any], str | None]


def handle_of(app: App, start: StartRequest, admission: Admission, on_duplicate: str) -> Handle[Any] | None:
    """The handle that the caller gets; None: there is an error instead, see `refusal`. Most calls end here."""
    new = isinstance(admission.decision, Admit)
    if not new and (on_duplicate == "raise" or isinstance(admission.decision, Refuse)):
        return None
    return Handle(app, admission.id, start.options.name, start.key, duplicate=not new)


async def refusal(
    app: App, start: StartRequest, admission: Admission
) -> KeyConflict | TaskAlreadyExists | TaskAlreadyCompleted:
    """The error that says why there is no handle for the caller."""
    match admission.decision:
        case Refuse(prior, reason):
            return await _conflict(app, start, prior, reason)
        case Join(prior) | Replay(prior):
            return await _duplicate(app, start, prior)
        case Admit():
            raise AssertionError("what was admitted has a handle")


async def _conflict(app: App, start: StartRequest, prior: Prior, reason: Reason) -> KeyConflict:
    stored = await app.engine.input_of(prior.id) if reason is Reason.INPUT_DIFFERS else None
    return conflict(start.key or "", start.options.name, prior, reason, stored, start.payload, start.shape)


async def _duplicate(app: App, start: StartRequest, prior: Prior) -> TaskAlreadyExists | TaskAlreadyCompleted:
    handle: Handle[Any] = Handle(app, prior.id, start.options.name, start.key, duplicate=True)
    execution = await app.engine.get(prior.id)
    if execution is not None and execution.status is Status.COMPLETED and execution.finished_at is not None:
        when = execution.finished_at
        return TaskAlreadyCompleted(
            f"{start.options.kind} {start.key!r} completed at {when:%Y-%m-%d %H:%M:%S} UTC as execution {prior.id}.",
            existing_execution_id=prior.id,
            completed_at=when,
            result=None if execution.expired else await handle.result(),
        )
    status = prior.status if execution is None else execution.status
    return TaskAlreadyExists(
        f"{start.options.kind} {start.key!r} is already {status}, as execution {prior.id}.",
        existing_execution_id=prior.id,
        status=status,
    )
