"""What a worker tells of its work: to the log, to an observer, to the failure hook."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo


class WorkerEventType(StrEnum):
    """What happened."""

    CLAIMED = "claimed"
    """A worker took an execution from its queue."""
    STARTED = "started"
    """An attempt of a task begins, or a workflow ran for the first time."""
    ENDED = "ended"
    """An execution or a message of an entity has ended: `status`, `seconds`, `attempt`, and `error` if it failed."""
    RETRIED = "retried"
    """An attempt of a task or a step failed; the next one begins in `retry_in` seconds."""
    LEASE_LOST = "lease_lost"
    """A worker was silent for too long, and others have its work. Without `execution`: all that it had."""
    RECOVERED = "recovered"
    """This worker put `count` executions of dead workers back into their queues."""
    PARKED = "parked"
    """The code of a workflow or an entity cannot go on (`error`); it is tried again in `retry_in` seconds, if given."""
    DUPLICATE = "duplicate"
    """A start or a message did not run again, since its key has run: `count` of them, and the `reason`."""
    SWEPT = "swept"
    """A sweeper (`name`) found `count` stuck rows with the outcome that `reason` names, such as `started`."""
    LOOP_BLOCKED = "loop_blocked"
    """Code held up the event loop for `seconds`, at the line that `reason` names."""


class WorkerEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that happened to an execution in a worker. What does not apply to its `type` is empty."""

    type: WorkerEventType
    kind: str = ""
    """`task`, `workflow`, `entity`, or `step` and `message`, which belong to the execution of a workflow or entity."""
    name: str = ""
    """The name of the function; of a message `Entity.handler`."""
    key: str | None = None
    """The `task_id`, `workflow_id` or entity id."""
    execution: str = ""
    """The execution id."""
    queue: str = ""
    attempt: int = 0
    status: Status | None = None
    seconds: float | None = None
    """How long the attempt, the workflow or the message took; None where nobody measured it."""
    error: ErrorInfo | None = None
    retry_in: float | None = None
    reason: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Failure:
    """A task, a workflow or a message of an entity that ended as failed or timed out, for `App(on_failure=...)`.

    Arguments are not part of it. Frames of `exception.__traceback__` hold local variables, as always in Python.
    """

    id: str
    """The execution id."""
    kind: str
    """`task`, `workflow`, or `message`, which belongs to the execution of an entity."""
    name: str
    key: str | None
    queue: str
    attempt: int
    status: Status
    error: ErrorInfo
    """Type, message, traceback as text and the root cause's type."""
    exception: BaseException | None
    """What was raised. None: nothing was raised in this process, as when the worker of the last attempt died."""
