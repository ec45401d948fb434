"""From a call to a request: everything is validated at the door."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, cast

from semel.codec import encode
from semel.contract.decision import Reuse
from semel.contract.durations import Duration, parse_duration
from semel.contract.fingerprint import fingerprint
from semel.contract.keys import check_key, check_name
from semel.contract.retention import TASK_RETENTION, WORKFLOW_RETENTION, keeping
from semel.define.task import Call, Task, check_priority
from semel.define.workflow import Workflow, WorkflowCall
from semel.engine.ids import new_id
from semel.engine.protocol import Capabilities, Start, Terms
from semel.errors import InvalidValue, PayloadTooLarge
from semel.settings import QueueSettings, Settings

_NO_QUEUE = QueueSettings()
MOST_TERMS: Final = 100
"""Combinations of options that are remembered of a task."""


def request(
    settings: Settings, task: Task[..., Any] | Call[Any], args: tuple[Any, ...], kwargs: dict[str, Any], *,
    task_id: str | None, on_duplicate: str = "return", reuse: str = "failed_only", priority: int | None = None,
    delay: Duration | None = None, run_at: datetime | None = None, queue: str | None = None,
) -> Start:  # fmt: skip
    """A request for one execution of a task."""
    if isinstance(task, Call):
        _no_more(args, kwargs, "enqueue(charge.call(...))")
        bound, task = task.bound, task.task
    elif isinstance(task, Task):
        bound = task.shape.bind(args, kwargs)
    else:
        raise InvalidValue(f"{task!r} is not a task: decorate it with @app.task.")
    key = None if task_id is None else check_key(task_id)
    return _start(settings, task, bound, key, on_duplicate, reuse, priority, delay, run_at, queue)


def workflow_request(
    settings: Settings, workflow: Workflow[..., Any] | WorkflowCall[Any], args: tuple[Any, ...],
    kwargs: dict[str, Any], *, workflow_id: str, on_duplicate: str = "return", reuse: str = "failed_only",
    priority: int | None = None, delay: Duration | None = None, run_at: datetime | None = None,
    queue: str | None = None, old: bool = False,
) -> Start:  # fmt: skip
    """A request for one execution of a workflow; of its newest version, unless an `old` one will do."""
    if isinstance(workflow, WorkflowCall):
        _no_more(args, kwargs, "start_workflow(process_order.call(...))")
        bound, workflow = workflow.bound, workflow.workflow
    elif isinstance(workflow, Workflow):
        bound = workflow.shape.bind(args, kwargs)
    else:
        raise InvalidValue(f"{workflow!r} is not a workflow: decorate it with @app.workflow.")
    if not old:
        workflow.refuse_if_old()
    key = check_key(workflow_id, "workflow_id")
    return _start(settings, workflow, bound, key, on_duplicate, reuse, priority, delay, run_at, queue)


def foreign_request(
    settings: Settings, able: Capabilities, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *,
    workflow_id: str, on_duplicate: str = "return", reuse: str = "failed_only", priority: int | None = None,
    delay: Duration | None = None, run_at: datetime | None = None, queue: str | None = None,
) -> Start:  # fmt: skip
    """A request for one execution of a workflow that other people's workers run, by its name."""
    if not able.foreign_workflows:
        raise InvalidValue(
            f"start_workflow({name!r}): a name stands for a workflow of a Temporal cluster, and this app runs on "
            f"{able.name}. Give the function itself, decorated with @app.workflow."
        )
    name = check_key(name, "workflow name")
    queue = _their_queue(name, kwargs.pop("task_queue", None), queue)
    if kwargs:
        raise TypeError(f"workflow {name!r} is known by name only: give its arguments by position, not {[*kwargs]}.")
    key = check_key(workflow_id, "workflow_id")
    parts = [encode(one, f"argument {n}", limit=settings.max_payload) for n, one in enumerate(args, 1)]
    payload = b'{"args":[' + b",".join(parts) + b"]}"
    if len(payload) > settings.max_payload:
        raise PayloadTooLarge(
            f"the arguments take {len(payload):,} bytes as JSON; at most {settings.max_payload:,} are stored. "
            "Keep the data elsewhere and pass a reference to it, or raise max_payload."
        )
    of_queue = settings.queues.get(queue, _NO_QUEUE)
    keep = keeping((None, None), (of_queue.retention, of_queue.dedup_window), (WORKFLOW_RETENTION, None))
    terms = Terms(
        "workflow", name, queue, 0 if priority is None else check_priority(priority), _reuse(reuse), 1, keep.retention,
        keep.window, None if delay is None else parse_duration(delay, "delay"), _instant(run_at, delay), foreign=True,
    )  # fmt: skip
    _check_on_duplicate(on_duplicate)
    return Start(new_id(), key, payload, fingerprint(name, payload), terms)


def _their_queue(name: str, task_queue: object, queue: str | None) -> str:
    if queue is not None:
        raise InvalidValue(f"queue={queue!r}: for workflow {name!r} of other workers say task_queue={queue!r}.")
    if task_queue is None:
        raise InvalidValue(f"start_workflow({name!r}) needs task_queue='…': the one that its workers poll.")
    return check_key(task_queue, "task_queue")


def _no_more(args: tuple[Any, ...], kwargs: dict[str, Any], form: str) -> None:
    if args or kwargs:
        raise TypeError(f"a call already carries its arguments: {form} takes only options.")


def _start(
    settings: Settings, task: Task[..., Any] | Workflow[..., Any], bound: dict[str, Any], key: str | None,
    on_duplicate: str, reuse: str, priority: int | None, delay: Duration | None, run_at: datetime | None,
    queue: str | None,
) -> Start:  # fmt: skip
    if delay is not None or run_at is not None:
        terms = _terms(settings, task, on_duplicate, reuse, priority, delay, run_at, queue)
    else:
        terms = _agreed(settings, task, on_duplicate, reuse, priority, queue)
    payload = task.shape.encode_input(bound, settings.max_payload)
    concurrency_key = task.concurrency_key_of(bound) if terms.keyed else None
    print_ = task.shape.fingerprint(task.name, bound, payload)
    return Start(new_id(), key, payload, print_, terms, concurrency_key, shape=task.shape)


def _agreed(
    settings: Settings, task: Task[..., Any] | Workflow[..., Any], on_duplicate: str, reuse: str, priority: int | None,
    queue: str | None,
) -> Terms:  # fmt: skip
    """Of one task with the same options there is one object: made once, and seen to be the same by identity."""
    options = (on_duplicate, reuse, priority, type(priority), queue)
    try:
        agreed, terms = task.agreed[options]
        if agreed is settings:
            return cast(Terms, terms)
    except (KeyError, TypeError):  # not seen yet, or not even hashable
        pass
    terms = _terms(settings, task, on_duplicate, reuse, priority, None, None, queue)
    if len(task.agreed) >= MOST_TERMS:
        task.agreed.clear()
    task.agreed[options] = settings, terms
    return terms


def _terms(
    settings: Settings, task: Task[..., Any] | Workflow[..., Any], on_duplicate: str, reuse: str, priority: int | None,
    delay: Duration | None, run_at: datetime | None, queue: str | None,
) -> Terms:  # fmt: skip
    _check_on_duplicate(on_duplicate)
    queue = task.queue if queue is None else check_name(queue, "queue")
    of_queue = settings.queues.get(queue, _NO_QUEUE)
    default = TASK_RETENTION if task.kind == "task" else WORKFLOW_RETENTION
    keep = keeping((task.retention, task.dedup_window), (of_queue.retention, of_queue.dedup_window), (default, None))
    return Terms(
        kind=task.kind,
        name=task.name,
        queue=queue,
        priority=task.priority if priority is None else check_priority(priority),
        reuse=_reuse(reuse),
        max_attempts=task.retry.max_attempts,
        retention=keep.retention,
        window=keep.window,
        delay=None if delay is None else parse_duration(delay, "delay"),
        run_at=_instant(run_at, delay),
        timeout=task.timeout if task.kind == "workflow" else None,
        rate_limited=task.rate_limit is not None,
        keyed=task.keyed,
    )


def _check_on_duplicate(on_duplicate: str) -> None:
    if on_duplicate not in ("return", "raise"):
        raise InvalidValue(f"on_duplicate={on_duplicate!r}: use 'return' or 'raise'.")


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
