"""One attempt: from a claim to its ending, whatever the task does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.define.context import Running, enter
from semel.define.task import Task
from semel.engine.outcomes import describe, describe_timeout
from semel.engines.journal.claiming import Claim
from semel.engines.journal.reading import dump_error
from semel.engines.journal.settling import Ending
from semel.engines.journal.threads import Threads
from semel.errors import NotDecodable


class Interrupted(Exception):
    """The worker stops: this attempt does not count and the task goes back to its lane."""


async def attempt(
    task: Task[..., Any], claim: Claim, running: Running, threads: Callable[[], Threads], limit: int
) -> Ending:
    """Run the task once. Never raises, except Interrupted and only when the worker itself stops."""
    enter(running)
    clock = None
    try:
        args, kwargs = task.shape.decode_input(claim.input)
    except NotDecodable as error:
        return Ending(claim, Status.FAILED, error=dump_error(describe(error)), undecodable=True)
    try:
        if task.timeout is None:
            value = await _call(task, args, kwargs, threads)
        else:
            async with asyncio.timeout(task.timeout.total_seconds()) as clock:
                value = await _call(task, args, kwargs, threads)
        return Ending(claim, Status.COMPLETED, task.shape.encode_result(value, limit))
    except asyncio.CancelledError as error:
        if running.stopping:
            raise Interrupted from None
        return _failed(task, claim, running, error, Status.FAILED)
    except TimeoutError as error:
        late = clock is not None and clock.expired()
        return _failed(task, claim, running, error, Status.TIMED_OUT if late else Status.FAILED)
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: a task must not take the worker with it
        return _failed(task, claim, running, error, Status.FAILED)


async def _call(task: Task[..., Any], args: Any, kwargs: Any, threads: Callable[[], Threads]) -> Any:
    if task.is_async:
        return await task.fn(*args, **kwargs)
    return await threads().run(copy_context(), partial(task.fn, *args, **kwargs))


def _failed(task: Task[..., Any], claim: Claim, running: Running, error: BaseException, status: Status) -> Ending:
    """Another attempt, or the end. A result that cannot be encoded will not be by another attempt either."""
    if running.cancelled:
        return Ending(claim, Status.CANCELLED)  # whatever it raised on its way out, that was what stopped it
    data = dump_error(_told(error, status, task))
    if claim.attempt < claim.max_attempts and not task.retry.is_non_retryable(error):
        return Ending(claim, status, error=data, retry_in=task.retry.delay(claim.attempt, random.random()))
    return Ending(claim, status, error=data, exception=error)


def _told(error: BaseException, status: Status, task: Task[..., Any]) -> ErrorInfo:
    if status is Status.TIMED_OUT and task.timeout is not None:
        return describe_timeout(error, task.timeout)
    return describe(error)
