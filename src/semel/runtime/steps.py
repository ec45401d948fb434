"""Runs the functions that a workflow runs in place: a step with its retries, or what a transaction does."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.define.context import Running, call_within, enter
from semel.engine.outcomes import describe, describe_timeout
from semel.flow.commands import Command
from semel.flow.turn import Identity

RunInThread = Callable[[Context, Callable[[], Any]], Awaitable[Any]]
"""Runs a sync function in a thread of the worker, in a context."""
ReportRetry = Callable[[Running, Status, ErrorInfo | None, float], None]
"""Is told of an attempt that failed, and in how many seconds the next one begins."""


class StepOutcome(Struct, frozen=True):
    """How a step ended, after its last attempt."""

    status: Status
    output: bytes | None = None
    error: ErrorInfo | None = None


def describe_step(command: Command, who: Identity, attempt: int, token: int) -> Running:
    """What `semel.current()` shows of an attempt of a step."""
    return Running(
        who.id,
        command.effect,
        command.name,
        "step",
        who.namespace,
        who.queue,
        attempt,
        command.tries.max_attempts,
        0,
        token,
        workflow_id=who.key,
    )


def transaction_of(command: Command, running: Running) -> Callable[[Any], bytes | None]:
    """What to do in a transaction. The result is encoded within: one that cannot be stored undoes what was written."""
    call: Callable[..., Any] | None = command.call

    def do(tx: Any) -> bytes | None:
        return call_within(running, lambda: command.write(None if call is None else call(tx)))

    return do


async def run_step(
    command: Command,
    describe_attempt: Callable[[int], Running],
    run_in_thread: RunInThread,
    is_dropped: Callable[[], bool],
    report_retry: ReportRetry,
) -> StepOutcome:
    """Run a step until it completes or its retry policy gives up.

    `describe_attempt` makes what `semel.current()` shows of an attempt. `is_dropped`: nobody waits for the step any
    more, so that it is not tried again. A CancelledError that comes then is raised; one that the step raises by itself
    is an error like any other.
    """
    policy = command.tries
    attempt = 0
    delay = 0.0
    while True:
        attempt += 1
        running = describe_attempt(attempt)
        enter(running)
        clock = None
        try:
            if attempt > 1:  # inside the try: a step may leave a cancellation behind, which is an error of its own
                await asyncio.sleep(delay)
            if command.timeout is None:
                value = await _call(command, run_in_thread)
            else:
                async with asyncio.timeout(command.timeout.total_seconds()) as clock:
                    value = await _call(command, run_in_thread)
            return StepOutcome(Status.COMPLETED, command.write(value))
        except BaseException as error:
            dropped = is_dropped()
            if dropped and isinstance(error, asyncio.CancelledError):
                raise
            failed = _failed(command, error, clock is not None and clock.expired())
            if dropped or attempt >= policy.max_attempts or policy.is_non_retryable(error):
                return failed
            delay = policy.delay(attempt, random.random())
            report_retry(running, failed.status, failed.error, delay)


async def _call(command: Command, run_in_thread: RunInThread) -> Any:
    call = command.call
    if call is None:
        return None
    if _is_async(call.func if isinstance(call, functools.partial) else call):
        return await call()
    value = await run_in_thread(copy_context(), call)
    return await value if inspect.isawaitable(value) else value


def _is_async(fn: Any) -> bool:
    code = getattr(fn, "__code__", None)  # asking inspect about a plain function takes ten times as long
    return bool(code.co_flags & inspect.CO_COROUTINE) if code is not None else inspect.iscoroutinefunction(fn)


def _failed(command: Command, error: BaseException, late: bool) -> StepOutcome:
    if late and isinstance(error, TimeoutError) and command.timeout is not None:
        return StepOutcome(Status.TIMED_OUT, error=describe_timeout(error, command.timeout))
    return StepOutcome(Status.FAILED, error=describe(error))
