"""Hands what happens in a worker to the log, to an observer and to the failure hook, alike on every engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.define.context import Running
from semel.engine.events import Failure, WorkerEvent, WorkerEventType
from semel.engine.protocol import Observer
from semel.flow.entries import Began
from semel.flow.turn import Ended, Identity, MessageEnd, Turn
from semel.runtime.event_log import log_event
from semel.runtime.failure_hook import FailureHook, OnFailure

log = logging.getLogger("semel.worker")
FAILED: Final = (Status.FAILED, Status.TIMED_OUT)
REMEMBERED: Final = 1000
"""Ends that are remembered, so that one which is told again is passed on once."""
COMPLAIN_EVERY: Final = 60.0
"""Seconds between two lines about an observer that raises."""


class Events:
    """Who wants to know of what happens: the log always, an observer and a failure hook if they are given.

    Ask `observed` before making an event that only an observer wants, and `wants_ends` before measuring something that
    may well succeed: where nobody listens, nothing is made. `emit` is for the worker's event loop.
    """

    def __init__(self, observer: Observer | None = None, on_failure: OnFailure | None = None) -> None:
        self.observed = observer is not None
        self._observer = observer
        self._hook = None if on_failure is None else FailureHook(on_failure)
        self._told: OrderedDict[str, None] = OrderedDict()
        self._complain_at = 0.0

    def set_observer(self, observer: Observer) -> None:
        """Have another observer told from now on. For before anything runs."""
        self._observer, self.observed = observer, True

    @property
    def wants_ends(self) -> bool:
        """Does somebody want to know of what ends well?"""
        return self.observed or log.isEnabledFor(logging.INFO)

    def emit(self, event: WorkerEvent, exception: BaseException | None = None) -> None:
        """Tell everybody. Never raises."""
        log_event(event)
        if self._observer is not None:
            try:
                self._observer.event(event)
            except Exception as error:
                self._complain(error)
        if self._hook is not None and event.status in FAILED and event.type is WorkerEventType.ENDED:
            self._hook.submit(
                Failure(
                    event.execution,
                    event.kind,
                    event.name,
                    event.key,
                    event.queue,
                    event.attempt,
                    event.status or Status.FAILED,
                    event.error or ErrorInfo("", "no error was recorded"),
                    exception,
                )
            )

    def _complain(self, error: Exception) -> None:
        if time.monotonic() >= self._complain_at:
            self._complain_at = time.monotonic() + COMPLAIN_EVERY
            log.error("the observer raised on an event; nothing else is affected", exc_info=error)

    def claimed(self, running: Running) -> None:
        """A worker has taken an execution."""
        self.emit(_about(running, WorkerEventType.CLAIMED))

    def started(self, running: Running) -> None:
        """An attempt begins."""
        self.emit(_about(running, WorkerEventType.STARTED))

    def ended(
        self,
        running: Running,
        status: Status,
        seconds: float | None,
        error: ErrorInfo | None = None,
        exception: BaseException | None = None,
    ) -> None:
        """An execution has come to its end."""
        self.emit(_about(running, WorkerEventType.ENDED, status=status, seconds=seconds, error=error), exception)

    def retried(self, running: Running, status: Status, error: ErrorInfo | None, retry_in: float) -> None:
        """An attempt failed, and there will be another one."""
        self.emit(_about(running, WorkerEventType.RETRIED, status=status, error=error, retry_in=retry_in))

    def lease_lost(self, running: Running) -> None:
        """A result was refused, or a run broken off, since others have the execution."""
        self.emit(_about(running, WorkerEventType.LEASE_LOST))

    def parked(self, running: Running, error: ErrorInfo, retry_in: float) -> None:
        """The code of a workflow or an entity cannot go on."""
        self.emit(_about(running, WorkerEventType.PARKED, error=error, retry_in=retry_in))

    def flow_parked(self, kind: str, who: Identity, error: ErrorInfo) -> None:
        """The code of a workflow or an entity cannot go on; it waits until somebody wakes it. Told once."""
        if self._is_news(f"parked/{who.id}/{error.message}"):
            log.error("%s %s %r is parked: %s", kind, who.name, who.key, error.message)
            self.emit(_of_flow(kind, who, WorkerEventType.PARKED, error=error))

    def wants_turn(self, kind: str, turn: Turn) -> bool:
        """Is there anything in this turn to tell anybody?"""
        if turn.messages:
            return True
        if turn.ended is not None and (turn.ended.status in FAILED or self.wants_ends):
            return True
        return self.observed and (turn.hits > 0 or _begins(kind, turn))

    def report_turn(
        self, kind: str, who: Identity, attempt: int, turn: Turn, seconds: float | None, run: str | None = None
    ) -> None:
        """What a turn of a workflow or an entity came to.

        `run`: the turn may have been run and told before it was written, so that the end of this run is told once.
        """
        if self.observed and _begins(kind, turn):
            self.emit(_of_flow(kind, who, WorkerEventType.STARTED, attempt=attempt))
        for message in turn.messages:
            self._message_ended(who, attempt, message)
        if turn.hits and self.observed:
            self.emit(_of_flow("message", who, WorkerEventType.DUPLICATE, reason="seen", count=turn.hits))
        if turn.ended is not None and (run is None or self._is_news(f"ended/{run}")):
            self._flow_ended(kind, who, attempt, turn.ended, seconds)

    def _message_ended(self, who: Identity, attempt: int, message: MessageEnd) -> None:
        event = WorkerEvent(
            type=WorkerEventType.ENDED,
            kind="message",
            name=f"{who.name}.{message.name}",
            key=who.key,
            execution=who.id,
            queue=who.queue,
            attempt=attempt,
            status=message.status,
            seconds=message.seconds,
            error=message.error,
        )
        self.emit(event, message.exception)

    def _flow_ended(self, kind: str, who: Identity, attempt: int, ended: Ended, seconds: float | None) -> None:
        if ended.status in FAILED or self.wants_ends:
            event = _of_flow(
                kind,
                who,
                WorkerEventType.ENDED,
                attempt=attempt,
                status=ended.status,
                seconds=seconds,
                error=ended.error,
            )
            self.emit(event, ended.exception)

    def _is_news(self, what: str) -> bool:
        """Was this never told before, as far as anybody remembers?"""
        if what in self._told:
            return False
        self._told[what] = None
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return True

    async def drain(self) -> None:
        """Wait for failure hooks under way, for a few seconds at most."""
        if self._hook is not None:
            await self._hook.drain()


class FromThreads:
    """The way to events of one event loop from the threads that run workflows beside it."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self._loop = asyncio.get_running_loop()

    def call(self, tell: Callable[..., None], *args: Any) -> None:
        """Have a method of `events` called in the loop; without effect once the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(tell, *args)


def _about(running: Running, type: WorkerEventType, **more: Any) -> WorkerEvent:
    key = running.workflow_id if running.kind == "step" else running.key
    return WorkerEvent(
        type=type,
        kind=running.kind,
        name=running.name,
        key=key,
        execution=running.id,
        queue=running.queue,
        attempt=running.attempt,
        **more,
    )


def _begins(kind: str, turn: Turn) -> bool:
    first = turn.entries[0] if turn.entries else None
    return kind == "workflow" and isinstance(first, Began) and first.run == 1


def _of_flow(kind: str, who: Identity, type: WorkerEventType, **more: Any) -> WorkerEvent:
    return WorkerEvent(type=type, kind=kind, name=who.name, key=who.key, execution=who.id, queue=who.queue, **more)
