"""From a call to a request: everything is validated at the door."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, cast

import msgspec

from semel.codec import Shape, decoder_of, encode
from semel.contract.decision import Reuse
from semel.contract.durations import Duration, parse_duration
from semel.contract.fingerprint import fingerprint
from semel.contract.keys import KEY_LENGTH, check_key, check_name
from semel.contract.retention import TASK_RETENTION, WORKFLOW_RETENTION, keeping
from semel.contract.retry import Retry
from semel.define.task import Call, Task, check_priority
from semel.define.workflow import MAX_WORKER_CRASHES, Workflow, WorkflowCall
from semel.engine.ids import new_id
from semel.engine.protocol import Capabilities
from semel.engine.start_request import RunOptions, StartRequest
from semel.errors import InvalidValue, NotDecodable, PayloadTooLarge, phrase
from semel.settings import QueueSettings, Settings, optional_duration

_NO_QUEUE = QueueSettings()
_read_arguments: Final = decoder_of(dict[str, Any]).decode
MOST_OPTIONS: Final = 100
"""Combinations of options that are remembered of a task."""


def request(
    settings: Settings,
    task: Task[..., Any] | Call[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    task_id: str | None = None,
    on_duplicate: str = "return",
    reuse: str = "failed_only",
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    queue: str | None = None,
) -> StartRequest:
    """A request for one execution of a task."""
    if isinstance(task, Call):
        _no_more(args, kwargs, "enqueue(charge.call(...))")
        bound, task = task.bound, task.task
    elif isinstance(task, Task):
        bound = task.shape.bind(args, kwargs)
    else:
        raise _not_a("task", task)
    key = None if task_id is None else task.stored_key(task_id, queue)
    return _start(settings, task, bound, key, on_duplicate, reuse, priority, delay, run_at, queue)


def workflow_request(
    settings: Settings,
    workflow: Workflow[..., Any] | WorkflowCall[Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    workflow_id: str,
    on_duplicate: str = "return",
    reuse: str = "failed_only",
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    queue: str | None = None,
    old: bool = False,
) -> StartRequest:
    """A request for one execution of a workflow; of its newest version, unless an `old` one will do."""
    if isinstance(workflow, WorkflowCall):
        _no_more(args, kwargs, "start_workflow(process_order.call(...))")
        bound, workflow = workflow.bound, workflow.workflow
    elif isinstance(workflow, Workflow):
        bound = workflow.shape.bind(args, kwargs)
    else:
        raise _not_a("workflow", workflow)
    if not old:
        workflow.refuse_if_old()
    key = check_key(workflow_id, "workflow_id")
    return _start(settings, workflow, bound, key, on_duplicate, reuse, priority, delay, run_at, queue)


def foreign_request(
    settings: Settings,
    able: Capabilities,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    workflow_id: str,
    on_duplicate: str = "return",
    reuse: str = "failed_only",
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    queue: str | None = None,
) -> StartRequest:
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
    _check_on_duplicate(on_duplicate)
    options = options_by_name(
        settings,
        "workflow",
        name,
        queue=queue,
        priority=0 if priority is None else priority,
        reuse=reuse,
        max_attempts=1,
        delay=delay,
        run_at=run_at,
        foreign=True,
    )
    return StartRequest(new_id(), key, payload, fingerprint(name, payload), options)


def request_by_name(
    settings: Settings,
    options: RunOptions,
    payload: bytes,
    *,
    key: str | None,
    concurrency_key: str | None = None,
    shape: Shape | None = None,
) -> StartRequest:
    """A request for one execution of a function that need not be at hand. `payload`: its arguments as a JSON object.

    With the `shape` of the function the arguments are checked, and the fingerprint is that of a request made with the
    function itself. Without it, it is the same as long as no argument is given that equals its default.
    """
    if key is not None or options.kind == "workflow":
        key = check_key(key, "task_id" if options.kind == "task" else "workflow_id")
    try:
        given = _read_arguments(payload)
    except msgspec.MsgspecError as error:
        raise NotDecodable(f"the arguments of a function are a JSON object: {phrase(error)}.") from error
    if shape is None:
        payload = encode(given, "arguments", limit=settings.max_payload)
        print_ = fingerprint(options.name, payload)
    else:
        payload = shape.encode_input(given, settings.max_payload)
        print_ = shape.fingerprint(options.name, given, payload)
    return StartRequest(new_id(), key, payload, print_, options, concurrency_key, shape=shape)


def options_by_name(
    settings: Settings,
    kind: str,
    name: str,
    *,
    queue: str = "default",
    priority: int = 0,
    reuse: str = "failed_only",
    max_attempts: int | None = None,
    retention: Duration | None = None,
    dedup_window: Duration | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    timeout: Duration | None = None,
    rate_limited: bool = False,
    keyed: bool = False,
    foreign: bool = False,
) -> RunOptions:
    """How to run a task or a workflow that is known by name; what is left out is as for a function that says nothing.

    What its own function says of itself (queue, attempts, retention, limits) is not known here: give what counts.
    """
    if kind not in ("task", "workflow"):
        raise InvalidValue(f"kind={kind!r}: use 'task' or 'workflow'.")
    of_queue = settings.queues.get(queue, _NO_QUEUE)
    keep = keeping(
        (optional_duration(retention, "retention"), optional_duration(dedup_window, "dedup_window")),
        (of_queue.retention, of_queue.dedup_window),
        (TASK_RETENTION if kind == "task" else WORKFLOW_RETENTION, None),
    )
    if max_attempts is None:
        max_attempts = Retry().max_attempts if kind == "task" else MAX_WORKER_CRASHES
    return RunOptions(
        kind=kind,
        name=name if foreign else check_name(name, f"{kind} name", KEY_LENGTH),
        queue=queue if foreign else check_name(queue, "queue"),
        priority=check_priority(priority),
        reuse=_reuse(reuse),
        max_attempts=max_attempts,
        retention=keep.retention,
        window=keep.window,
        delay=None if delay is None else parse_duration(delay, "delay"),
        run_at=_instant(run_at, delay),
        timeout=optional_duration(timeout, "timeout"),
        rate_limited=rate_limited,
        keyed=keyed,
        foreign=foreign,
    )


def _their_queue(name: str, task_queue: object, queue: str | None) -> str:
    if queue is not None:
        raise InvalidValue(f"queue={queue!r}: for workflow {name!r} of other workers say task_queue={queue!r}.")
    if task_queue is None:
        raise InvalidValue(f"start_workflow({name!r}) needs task_queue='…': the one that its workers poll.")
    return check_key(task_queue, "task_queue")


def _not_a(wanted: str, given: object) -> InvalidValue:
    """What was given in the place of a task or of a workflow, and what to do with it."""
    if isinstance(given, Workflow | WorkflowCall):
        return InvalidValue(f"{given!r} is a workflow: start it with start_workflow(…, workflow_id='…').")
    if isinstance(given, Task | Call):
        return InvalidValue(f"{given!r} is a task: ask for it with enqueue(…).")
    return InvalidValue(f"{given!r} is not a {wanted}: decorate it with @app.{wanted}.")


def _no_more(args: tuple[Any, ...], kwargs: dict[str, Any], form: str) -> None:
    if args or kwargs:
        raise TypeError(f"a call already carries its arguments: {form} takes only options.")


def _start(
    settings: Settings,
    task: Task[..., Any] | Workflow[..., Any],
    bound: dict[str, Any],
    key: str | None,
    on_duplicate: str,
    reuse: str,
    priority: int | None,
    delay: Duration | None,
    run_at: datetime | None,
    queue: str | None,
) -> StartRequest:
    if delay is not None or run_at is not None:
        options = options_of(settings, task, on_duplicate, reuse, priority, delay, run_at, queue)
    else:
        options = _shared_options(settings, task, on_duplicate, reuse, priority, queue)
    payload = task.shape.encode_input(bound, settings.max_payload)
    concurrency_key = task.concurrency_key_of(bound) if options.keyed else None
    print_ = task.shape.fingerprint(task.name, bound, payload)
    return StartRequest(new_id(), key, payload, print_, options, concurrency_key, shape=task.shape)


def _shared_options(
    settings: Settings,
    task: Task[..., Any] | Workflow[..., Any],
    on_duplicate: str,
    reuse: str,
    priority: int | None,
    queue: str | None,
) -> RunOptions:
    """Of one task with the same options there is one object: made once, and seen to be the same by identity."""
    asked = (on_duplicate, reuse, priority, type(priority), queue)
    try:
        made_for, options = task.recent_options[asked]
        if made_for is settings:
            return cast(RunOptions, options)
    except (KeyError, TypeError):  # not seen yet, or not even hashable
        pass
    options = options_of(settings, task, on_duplicate, reuse, priority, None, None, queue)
    if len(task.recent_options) >= MOST_OPTIONS:
        task.recent_options.clear()
    task.recent_options[asked] = settings, options
    return options


def options_of(
    settings: Settings,
    task: Task[..., Any] | Workflow[..., Any],
    on_duplicate: str,
    reuse: str,
    priority: int | None,
    delay: Duration | None,
    run_at: datetime | None,
    queue: str | None,
) -> RunOptions:
    """How to run one execution of a function: what it says of itself, and what the request says."""
    _check_on_duplicate(on_duplicate)
    return options_by_name(
        settings,
        task.kind,
        task.name,
        queue=task.queue if queue is None else queue,
        priority=task.priority if priority is None else priority,
        reuse=reuse,
        max_attempts=task.retry.max_attempts,
        retention=task.retention,
        dedup_window=task.dedup_window,
        delay=delay,
        run_at=run_at,
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
