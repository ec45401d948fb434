"""From a call to a request, and from the engine's answer to a handle or an error."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay, Reuse
from semel.contract.durations import Duration, parse_duration
from semel.contract.fingerprint import differences, fingerprint
from semel.contract.keys import check_key, check_name
from semel.contract.lifecycle import Status
from semel.contract.retention import Keeping, keeping
from semel.define.task import Call, Task, check_priority
from semel.engine.ids import new_id
from semel.engine.protocol import Admission, Start
from semel.errors import InvalidValue, KeyConflict, TaskAlreadyCompleted, TaskAlreadyExists
from semel.handle import Handle
from semel.settings import QueueSettings, Settings

if TYPE_CHECKING:
    from semel.app import App

Batch = Call[Any] | tuple[Call[Any], str | None]
_NO_QUEUE = QueueSettings()


def request(
    settings: Settings, task: Task[..., Any] | Call[Any], args: tuple[Any, ...], kwargs: dict[str, Any], *,
    task_id: str | None, on_duplicate: str, reuse: str, priority: int | None, delay: Duration | None,
    run_at: datetime | None, queue: str | None,
) -> Start:  # fmt: skip
    """Validate everything at the door and make the request."""
    if isinstance(task, Call):
        if args or kwargs:
            raise TypeError("a call already carries its arguments: enqueue(charge.call(...)) takes only options.")
        bound, task = task.bound, task.task
    elif isinstance(task, Task):
        bound = task.shape.bind(args, kwargs)
    else:
        raise InvalidValue(f"{task!r} is not a task: decorate it with @app.task.")
    if on_duplicate not in ("return", "raise"):
        raise InvalidValue(f"on_duplicate={on_duplicate!r}: use 'return' or 'raise'.")
    payload = task.shape.encode_input(bound, settings.max_payload)
    queue = task.queue if queue is None else check_name(queue, "queue")
    of_queue = settings.queues.get(queue, _NO_QUEUE)
    keep = _keeping(task.retention, task.dedup_window, of_queue.retention, of_queue.dedup_window)
    return Start(
        id=new_id(),
        kind="task",
        name=task.name,
        key=None if task_id is None else check_key(task_id),
        queue=queue,
        priority=task.priority if priority is None else check_priority(priority),
        payload=payload,
        fingerprint=fingerprint(task.name, payload),
        reuse=_reuse(reuse),
        max_attempts=task.retry.max_attempts,
        retention=keep.retention,
        window=keep.window,
        delay=None if delay is None else parse_duration(delay, "delay"),
        run_at=_instant(run_at, delay),
        rate_limited=task.rate_limit is not None,
        concurrency_key=task.concurrency_key_of(bound),
    )


@cache
def _keeping(*given: timedelta | None) -> Keeping:
    """Task first, then queue; an app has few combinations, and asks for them all the time."""
    return keeping((given[0], given[1]), (given[2], given[3]))


@cache
def _reuse(reuse: str) -> Reuse:
    try:
        return Reuse(reuse)
    except ValueError:
        raise InvalidValue(f"reuse={reuse!r}: use 'failed_only', 'reject' or 'always'.") from None


def _instant(run_at: datetime | None, delay: Duration | None) -> datetime | None:
    if run_at is None:
        return None
    if delay is not None:
        raise InvalidValue("give delay or run_at, not both.")
    if not isinstance(run_at, datetime) or run_at.tzinfo is None:
        raise InvalidValue(f"run_at={run_at!r} has no time zone: give one, such as datetime.now(UTC) + ….")
    return run_at


async def answer(app: App, start: Start, admission: Admission, on_duplicate: str) -> Handle[Any]:
    """What the caller gets: a handle, or the error that says why not."""
    match admission.decision:
        case Admit():
            return Handle(app, admission.id, name=start.name, key=start.key, duplicate=False)
        case Refuse(prior, reason):
            raise await _conflict(app, start, prior, reason)
        case Join(prior) | Replay(prior):
            if on_duplicate == "raise":
                raise await _duplicate(app, start, prior)
            return Handle(app, admission.id, name=start.name, key=start.key, duplicate=True)


async def _conflict(app: App, start: Start, prior: Prior, reason: Reason) -> KeyConflict:
    found: dict[str, tuple[Any, Any]] = {}
    if reason is Reason.FUNCTION_DIFFERS:
        what = f"of another function ({prior.name} -> {start.name})"
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
    handle: Handle[Any] = Handle(app, prior.id, name=start.name, key=start.key, duplicate=True)
    execution = await app.engine.get(prior.id)
    if execution is not None and execution.status is Status.COMPLETED and execution.finished_at is not None:
        when = execution.finished_at
        return TaskAlreadyCompleted(
            f"task {start.key!r} completed at {when:%Y-%m-%d %H:%M:%S} UTC as execution {prior.id}.",
            existing_execution_id=prior.id,
            completed_at=when,
            result=None if execution.expired else await handle.result(),
        )
    status = prior.status if execution is None else execution.status
    return TaskAlreadyExists(
        f"task {start.key!r} is already {status}, as execution {prior.id}.",
        existing_execution_id=prior.id,
        status=status,
    )
