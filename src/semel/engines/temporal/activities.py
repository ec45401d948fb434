"""Tasks as activities: one attempt each, with the same `semel.current()` as on every engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, CancelledError
from temporalio.service import RPCError

from semel.contract.lifecycle import Status
from semel.define.context import Running
from semel.define.task import Task
from semel.engine import undecodable_input
from semel.engines.temporal.inside.attempts import AttemptInfo, Verdict, read_slip
from semel.engines.temporal.names import execution_id
from semel.engines.temporal.payloads import NOTHING, unwrap, wrap
from semel.runtime.attempt import AttemptOutcome, Interrupted, run_attempt
from semel.runtime.events import Events
from semel.runtime.threads import Threads
from semel.settings import Settings

log = logging.getLogger("semel.worker")
BEAT: Final = 1.0
"""Seconds between two heartbeats at most: with them comes the news that someone wants a task cancelled."""

MOMENT: Final = 2.0
LAST_WORDS: Final = 1.0
"""Seconds that a task has for its clean-up once it is interrupted; then it is given back all the same."""
MOST_REMEMBERED: Final = 1000


class CancelGroup:
    """Activities of one worker that are broken off when it stops. Temporal has them tried again elsewhere."""

    def __init__(self) -> None:
        self.over = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        if self.over:
            raise asyncio.CancelledError
        self._tasks.add(_this_task())

    def __exit__(self, *_: object) -> None:
        self._tasks.discard(_this_task())

    def interrupt(self) -> None:
        """Break off what runs, and whatever still begins."""
        self.over = True
        for task in self._tasks:
            task.cancel()


class Runner:
    """Runs the tasks of one worker."""

    def __init__(self, namespace: str, settings: Settings, events: Events) -> None:
        self.events = events
        self.busy: dict[bytes, Running] = {}
        self._namespace = namespace
        self._settings = settings
        self._warner = undecodable_input.Warner(log, settings.worker.decode_timeout)
        self._threads: Threads | None = None
        self._inner: dict[bytes, asyncio.Task[AttemptOutcome]] = {}
        self._outer: dict[bytes, asyncio.Task[Any]] = {}
        self.errands = CancelGroup()
        """What it does for workflows besides."""
        self.steps = CancelGroup()
        """The steps of workflows, in the process that holds them."""
        self._ended: deque[tuple[float, str, str]] = deque(maxlen=MOST_REMEMBERED)

    def activity(self, task: Task[..., Any]) -> Callable[..., Awaitable[RawValue]]:
        """A task as Temporal takes it."""

        async def perform(input: RawValue, slip: RawValue = NOTHING) -> RawValue:
            ours = unwrap(slip) is not None  # other people's workflows have retries of their own
            try:
                return await self._perform(task, unwrap(input) or b"{}", _slip(task, slip), offered_again=ours)
            except (ApplicationError, CancelledError):
                raise
            except Exception as error:  # the server would try again and again what is not declared to be in vain
                raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error

        return activity.defn(name=task.name)(perform)

    async def _perform(self, task: Task[..., Any], input: bytes, slip: AttemptInfo, *, offered_again: bool) -> RawValue:
        if self.errands.over:
            raise _given_back()
        info = activity.info()
        if offered_again and slip.attempt >= slip.max_attempts:
            await _say_that_it_begins(info.task_token)
        running = Running(
            slip.id,
            slip.key,
            task.name,
            "task",
            self._namespace,
            info.task_queue,
            slip.attempt,
            slip.max_attempts,
            slip.generation,
            slip.attempt,
            parent_workflow_id=slip.parent,
            _root=slip.root,
        )
        if self.events.observed:
            self.events.claimed(running)
            self.events.started(running)
        began = time.perf_counter() if self.events.wants_ends else 0.0
        self.busy[info.task_token] = running
        inner = asyncio.create_task(run_attempt(task, input, running, self.threads, self._settings.max_payload))
        self._inner[info.task_token] = inner
        self._outer[info.task_token] = _this_task()
        heart = asyncio.create_task(_beat(running, self._settings.worker.lease))
        try:
            ran = await _until_end(task, running, inner)
        except Interrupted:
            why = activity.cancellation_details()
            if why is not None and (why.not_found or why.timed_out):
                self.events.lease_lost(running)
            raise _given_back() from None
        finally:
            heart.cancel()
            del self.busy[info.task_token], self._inner[info.task_token], self._outer[info.task_token]
            self._ended.append((time.monotonic(), info.workflow_id or "", info.workflow_run_id or ""))
        if ran.undecodable and offered_again:
            raise self._left(ran, slip, running)
        self._report(running, ran, time.perf_counter() - began if began else None)
        return _answer_of(ran)

    def _report(self, running: Running, ran: AttemptOutcome, seconds: float | None) -> None:
        """Tell who listens what became of an attempt."""
        if ran.retry_in is not None:
            self.events.retried(running, ran.status, ran.error, ran.retry_in)
        elif ran.error is not None or self.events.wants_ends:
            self.events.ended(running, ran.status, seconds, ran.error, ran.exception)

    def _left(self, ran: AttemptOutcome, slip: AttemptInfo, running: Running) -> ApplicationError:
        """Leave a task for a worker that can decode its input; the workflow that waits for it offers it again."""
        patience = self._settings.worker.decode_timeout
        delay = undecodable_input.next_offer(slip.undecoded, patience)
        error = ran.error or undecodable_input.NOT_DECODABLE
        if delay is None:
            error = undecodable_input.given_up(error, patience)
            self.events.ended(running, Status.FAILED, None, error)
            return _error(Verdict(Status.FAILED.value, error), error.message)
        self._warner.left(slip.name, slip.id, error.message)
        error = undecodable_input.waiting(error, patience)
        return _error(Verdict(Status.FAILED.value, error, delay, counts=False), error.message)

    def lately(self) -> set[tuple[str, str]]:
        """The workflows of tasks that ended here a moment ago: they may not have heard of it yet."""
        after = time.monotonic() - MOMENT
        return {(id_, run) for at, id_, run in self._ended if at > after}

    def threads(self) -> Threads:
        """Threads for sync tasks and steps."""
        if self._threads is None:
            self._threads = Threads(self._settings.worker.concurrency)
        return self._threads

    def interrupt_tasks(self) -> None:
        """Give back the tasks that still run, and what is done for workflows."""
        self.errands.interrupt()
        for token, running in self.busy.items():
            running.stopping = True
            self._inner[token].cancel()
        asyncio.get_running_loop().call_later(LAST_WORDS, self._leave, list(self.busy))

    def _leave(self, tokens: Sequence[bytes]) -> None:
        """Wait no longer for those that do not heed it."""
        for token in tokens:
            if token in self._outer:
                self._outer[token].cancel()

    def close(self) -> None:
        """Let idle threads go."""
        if self._threads is not None:
            self._threads.close()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _until_end(task: Task[..., Any], running: Running, inner: asyncio.Task[AttemptOutcome]) -> AttemptOutcome:
    while True:
        try:
            return await asyncio.shield(inner)
        except asyncio.CancelledError:
            if inner.done():
                if inner.cancelled():
                    raise Interrupted from None
                return inner.result()
            why = activity.cancellation_details()
            if why is not None and why.cancel_requested:
                running.cancelled = True
                if task.is_async:  # a thread cannot be stopped: a sync task looks at `cancelled` itself
                    inner.cancel()
            else:
                if not running.stopping:
                    running.stopping = True
                    inner.cancel()
                    await asyncio.wait([inner], timeout=LAST_WORDS)
                raise Interrupted from None


async def _say_that_it_begins(token: bytes) -> None:
    """Tell the cluster that the last attempt begins, and wait until it knows.

    A task can be handed over with the last poll of a worker that stops, and is lost with it. What was lost without this
    word has not begun, so that it can be given to another worker although there is no attempt left.
    """
    try:
        await activity.client().get_async_activity_handle(task_token=token).heartbeat(None)
    except AsyncActivityCancelledError:
        raise CancelledError("cancelled") from None
    except RPCError:  # the cluster has given it to another worker, or does not answer: it is not begun here
        raise _given_back() from None


async def _beat(running: Running, lease: timedelta) -> None:
    """A heartbeat now and then. A cluster counts from the start of a task, so that short ones need none."""
    while True:
        await asyncio.sleep(min(BEAT, lease.total_seconds() / 3))
        activity.heartbeat(running.progress)


def _given_back() -> ApplicationError:
    return _error(Verdict(retry_in=0.0, counts=False), "the worker stopped")


def _answer_of(ran: AttemptOutcome) -> RawValue:
    match ran.status:
        case Status.COMPLETED:
            return wrap(ran.output)
        case Status.CANCELLED:
            raise CancelledError("cancelled")
        case status:
            message = ran.error.message if ran.error else status.value
            raise _error(Verdict(status.value, ran.error, ran.retry_in), message)


def _error(verdict: Verdict, message: str) -> ApplicationError:
    kind = verdict.error.type if verdict.error else "semel.Interrupted"
    return ApplicationError(
        message, msgspec.to_builtins(verdict), type=kind, non_retryable=True, category=ApplicationErrorCategory.BENIGN
    )


def _slip(task: Task[..., Any], slip: RawValue) -> AttemptInfo:
    """What was said about this attempt; other people's workflows say nothing, and Temporal counts for them."""
    if (said := unwrap(slip)) is not None:
        return read_slip(said)
    info = activity.info()
    id_ = f"{execution_id(info.workflow_run_id or '', info.workflow_id or '')}#{info.activity_id}"
    return AttemptInfo(
        id_, task.name, attempt=info.attempt, max_attempts=info.attempt, root=f"{info.workflow_id}/{info.activity_id}"
    )
