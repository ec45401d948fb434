"""From the engine's answer to a handle or an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay
from semel.contract.fingerprint import differences
from semel.contract.lifecycle import Status
from semel.define.task import Call
from semel.engine.protocol import Admission, Start
from semel.errors import KeyConflict, TaskAlreadyCompleted, TaskAlreadyExists
from semel.handle import Handle

if TYPE_CHECKING:
    from semel.app import App

Batch = Call[Any] | tuple[Call[Any], str | None]


async def answer(app: App, start: Start, admission: Admission, on_duplicate: str) -> Handle[Any]:
    """What the caller gets: a handle, or the error that says why not."""
    match admission.decision:
        case Admit():
            return Handle(app, admission.id, start.terms.name, start.key, duplicate=False)
        case Refuse(prior, reason):
            raise await _conflict(app, start, prior, reason)
        case Join(prior) | Replay(prior):
            if on_duplicate == "raise":
                raise await _duplicate(app, start, prior)
            return Handle(app, admission.id, start.terms.name, start.key, duplicate=True)


async def _conflict(app: App, start: Start, prior: Prior, reason: Reason) -> KeyConflict:
    found: dict[str, tuple[Any, Any]] = {}
    if reason is Reason.FUNCTION_DIFFERS:
        what = f"of another function ({prior.name} -> {start.terms.name})"
    else:
        stored = await app.engine.input_of(prior.id)
        if stored is not None:
            found = differences(stored, start.payload)
        fields = ", ".join(f"{path}: {_brief(old)} -> {_brief(new)}" for path, (old, new) in found.items())
        what = f"with other input ({fields or 'its stored input is past its retention'})"
    return KeyConflict(
        f"key {start.key!r} already started execution {prior.id} {what}. "
        f"Use a new key, or see: semel explain {start.key}",
        existing_execution_id=prior.id,
        status=prior.status,
        differences=found,
    )


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


async def _duplicate(app: App, start: Start, prior: Prior) -> TaskAlreadyExists | TaskAlreadyCompleted:
    handle: Handle[Any] = Handle(app, prior.id, start.terms.name, start.key, duplicate=True)
    execution = await app.engine.get(prior.id)
    if execution is not None and execution.status is Status.COMPLETED and execution.finished_at is not None:
        when = execution.finished_at
        return TaskAlreadyCompleted(
            f"{start.terms.kind} {start.key!r} completed at {when:%Y-%m-%d %H:%M:%S} UTC as execution {prior.id}.",
            existing_execution_id=prior.id,
            completed_at=when,
            result=None if execution.expired else await handle.result(),
        )
    status = prior.status if execution is None else execution.status
    return TaskAlreadyExists(
        f"{start.terms.kind} {start.key!r} is already {status}, as execution {prior.id}.",
        existing_execution_id=prior.id,
        status=status,
    )
