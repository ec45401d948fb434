"""One attempt of a task, whatever its function does: the same on every engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec import Struct

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.define.context import Running, enter
from semel.define.task import Task
from semel.engine.outcomes import describe, describe_timeout
from semel.errors import NotDecodable
from semel.runtime.threads import Threads


class Interrupted(Exception):
    """The worker stops: this attempt does not count, and the task is given back."""


class AttemptOutcome(Struct, frozen=True):
    """What became of one attempt. `retry_in` seconds: there is to be another one; None: `status` is final."""

    status: Status
    output: bytes | None = None
    error: ErrorInfo | None = None
    retry_in: float | None = None
    undecodable: bool = False
    """The function was not called: its input does not fit the signature that this worker has."""
    exception: BaseException | None = None
    """What the last attempt raised, for who watches this worker; it is not stored."""


async def run_attempt(
    task: Task[..., Any], input: bytes, running: Running, threads: Callable[[], Threads], limit: int
) -> AttemptOutcome:
    """Run the task once. Never raises, except Interrupted and only when the worker itself stops."""
    enter(running)
    clock = None
    try:
        args, kwargs = task.shape.decode_input(input)
    except NotDecodable as error:
        return AttemptOutcome(Status.FAILED, error=describe(error), undecodable=True)
    except BaseException as error:  # a type of the user's may have code of its own
        return _failed(task, running, error, Status.FAILED)
    try:
        if task.timeout is None:
            value = await _call(task, args, kwargs, threads)
        else:
            async with asyncio.timeout(task.timeout.total_seconds()) as clock:
                value = await _call(task, args, kwargs, threads)
        return AttemptOutcome(Status.COMPLETED, task.shape.encode_result(value, limit))
    except asyncio.CancelledError as error:
        if running.stopping:
            raise Interrupted from None
        return _failed(task, running, error, Status.FAILED)
    except TimeoutError as error:
        late = clock is not None and clock.expired()
        return _failed(task, running, error, Status.TIMED_OUT if late else Status.FAILED)
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: a task must not take the worker with it
        return _failed(task, running, error, Status.FAILED)


async def _call(task: Task[..., Any], args: Any, kwargs: Any, threads: Callable[[], Threads]) -> Any:
    if task.is_async:
        return await task.fn(*args, **kwargs)
    return await threads().run(copy_context(), partial(task.fn, *args, **kwargs))


def _failed(task: Task[..., Any], running: Running, error: BaseException, status: Status) -> AttemptOutcome:
    """Another attempt, or the end. A result that cannot be encoded will not be by another attempt either."""
    if running.cancelled:
        return AttemptOutcome(Status.CANCELLED)  # whatever it raised on its way out, that was what stopped it
    timeout = task.timeout if status is Status.TIMED_OUT else None
    told = describe(error) if timeout is None else describe_timeout(error, timeout)
    if running.attempt < running.max_attempts and not task.retry.is_non_retryable(error):
        return AttemptOutcome(status, error=told, retry_in=task.retry.delay(running.attempt, random.random()))
    return AttemptOutcome(status, error=told, exception=error)
