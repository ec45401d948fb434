"""Attempts of a task, as a workflow sees them: one activity after the other, until one decides how it ends.

The activity says whether there is to be another attempt and when, so that what is decided here comes from history
alone, whatever a later deploy says about retries.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from temporalio import workflow
from temporalio.common import Priority, RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutError, TimeoutType, is_cancelled_exception
from temporalio.workflow import ActivityCancellationType

from semel.codec import converter_of, decoder_of
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.temporal.inside.clock import Clock
from semel.engines.temporal.payloads import unwrap, wrap
from semel.flow.turn import Ended

BY_OTHERS: Final = RetryPolicy(
    initial_interval=timedelta(milliseconds=250),
    maximum_interval=timedelta(seconds=5),
    non_retryable_error_types=["TemporalTimeout:Heartbeat", "TemporalTimeout:StartToClose"],
)
"""The server offers a task again that was given to a worker without its function. All else is decided here: our
activities raise what is not retryable, and a worker that died counts as an attempt."""
FOR_EVER: Final = timedelta(days=3650)
LEVELS: Final = 5
DEATH: Final = "semel.WorkerLost"
NOT_BEGUN: Final = "semel.StartDeadline"
UNKNOWN: Final = "NotFoundError"
"""How Temporal calls the error of a worker that does not have the task."""
ELSEWHERE: Final = 1.0
"""Seconds until a task is offered again that was offered to a worker without it."""


class AttemptInfo(Struct, frozen=True, omit_defaults=True):
    """What an activity is told of the execution that it is an attempt of."""

    id: str
    name: str
    key: str | None = None
    attempt: int = 1
    max_attempts: int = 1
    generation: int = 0
    root: str | None = None
    parent: str | None = None
    undecoded: float = 0.0
    """Seconds since a worker first could not decode its input."""


class Verdict(Struct, frozen=True, omit_defaults=True):
    """What an activity says of an attempt that gave no result."""

    status: str = Status.FAILED.value
    error: ErrorInfo | None = None
    retry_in: float | None = None
    """Seconds to the next attempt; None: this was the last one."""
    counts: bool = True
    """False: its worker stopped, or could not decode its input, and nothing is known of the task itself."""


read_slip: Final = decoder_of(AttemptInfo).decode
_to_verdict: Final = converter_of(Verdict)


async def attempts(
    clock: Clock,
    name: str,
    queue: str,
    input: bytes,
    slip: Callable[[int], AttemptInfo],
    *,
    max_attempts: int,
    lease: timedelta,
    priority: int,
    tell: Callable[[int, ErrorInfo | None, int], None] = lambda *_: None,
    mark: str | None = None,
    lost: Callable[[AttemptInfo, Verdict], None] = lambda *_: None,
    start_by: int | None = None,
) -> Ended:
    """Run a task to its end. Cancelled: so is the activity.

    `tell` hears of each attempt that is not the last: how many there were that count, its error, when the next is due.
    `lost` hears of each attempt whose worker died.
    `start_by`: it has ended with NOT_BEGUN if no worker took its first attempt by then.
    `mark` becomes the id of the activity, which Temporal compares when it replays; its input it does not compare.
    """
    done = 0
    undecoded_since: int | None = None
    while True:
        attempt = done + 1
        about = slip(attempt)
        if undecoded_since is not None:
            about = replace(about, undecoded=(clock.now() - undecoded_since) / 1_000_000)
        try:
            waits = _time_left(clock, start_by) if done == 0 else None
            args = [wrap(input), wrap(msgspec.json.encode(about))]
            result = await _execute(name, queue, args, lease, priority, mark, waits)
            return Ended(Status.COMPLETED, unwrap(result))
        except ActivityError as error:
            if is_cancelled_exception(error):
                return Ended(Status.CANCELLED)
            if _was_never_taken(error.cause):
                return Ended(Status.CANCELLED, None, ErrorInfo(NOT_BEGUN, str(error.cause)))
            verdict = verdict_of(error, attempt, max_attempts)
            if verdict.error is not None and verdict.error.type == DEATH:
                lost(about, verdict)
        if verdict.retry_in is None:
            return Ended(Status(verdict.status), None, verdict.error)
        done += verdict.counts
        due = clock.now() + round(verdict.retry_in * 1_000_000)
        left_undecoded = not verdict.counts and verdict.error is not None
        if verdict.counts:
            undecoded_since = None
        elif left_undecoded and undecoded_since is None:
            undecoded_since = clock.now()
        if verdict.counts or left_undecoded:
            tell(done, verdict.error, due)
        if verdict.retry_in > 0:
            await clock.until(due)


async def _execute(
    name: str,
    queue: str,
    args: list[RawValue],
    lease: timedelta,
    priority: int,
    mark: str | None,
    waits: timedelta | None,
) -> RawValue:
    """One attempt, as an activity; `waits` is how long it may wait for a worker."""
    result: RawValue = await workflow.execute_activity(
        name,
        args=args,
        task_queue=queue,
        result_type=RawValue,
        start_to_close_timeout=FOR_EVER,
        schedule_to_start_timeout=waits,
        heartbeat_timeout=lease,
        retry_policy=BY_OTHERS,
        cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        priority=priority_of(priority),
        activity_id=mark,
    )
    return result


def _was_never_taken(cause: BaseException | None) -> bool:
    return isinstance(cause, TimeoutError) and cause.type == TimeoutType.SCHEDULE_TO_START


def _time_left(clock: Clock, until: int | None) -> timedelta | None:
    return None if until is None else timedelta(microseconds=max(1000, until - clock.now()))


def verdict_of(error: ActivityError, attempt: int, most: int) -> Verdict:
    """What became of an attempt."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.details:
        return _to_verdict(cause.details[0])
    if isinstance(cause, ApplicationError) and cause.type == UNKNOWN:
        return Verdict(retry_in=ELSEWHERE, counts=False)
    if attempt >= most and _never_began(cause):
        return Verdict(retry_in=0.0, counts=False)
    text = f"the worker died or went silent while running this task ({attempt} times, of {most}): {cause or error}"
    return Verdict(error=ErrorInfo(DEATH, text), retry_in=0.0 if attempt < most else None)


def _never_began(cause: BaseException | None) -> bool:
    """Was a last attempt handed to a worker that stopped polling in that moment?

    Before its function a worker tells the cluster that the last attempt begins (see activities.py): one that timed out
    without a word has not begun, and counts for nothing. What was recorded before this was known stays as it was.
    """
    silent = (
        isinstance(cause, TimeoutError) and cause.type == TimeoutType.HEARTBEAT and not cause.last_heartbeat_details
    )
    return silent and workflow.patched("semel-last-attempts-say-that-they-begin")


def priority_of(priority: int) -> Priority:
    """Temporal has five levels, 1 first; Semel's default 0 is its default 3."""
    level = 3 if priority == 0 else (2 if priority < 10 else 1) if priority > 0 else (4 if priority > -10 else LEVELS)
    return Priority(priority_key=level)
