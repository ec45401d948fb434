"""One wrapper that observes any engine. Without an observer it is not even built."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from semel.contract.decision import Admit, Join, Refuse
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.engine.protocol import Admission, Engine, Observer
from semel.engine.start_request import StartRequest

log = logging.getLogger("semel.observer")


class Observers(Observer):
    """Several observers as one. What one of them raises is logged, and the others are told all the same."""

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers

    def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
        """See Observer."""
        for one in self.observers:
            try:
                one.observe(verb, seconds, error)
            except Exception:
                log.exception("an observer raised on %s; the call is not affected", verb)

    def event(self, event: WorkerEvent) -> None:
        """See Observer."""
        for one in self.observers:
            try:
                one.event(event)
            except Exception:
                log.exception("an observer raised on an event; nothing else is affected")


def observed(engine: Engine, observer: Observer) -> Engine:
    """The engine, with every awaited verb reported to the observer."""
    return cast(Engine, _Observed(engine, observer))


class _Observed:
    def __init__(self, engine: Engine, observer: Observer) -> None:
        self._engine = engine
        self._observer = observer

    def __getattr__(self, verb: str) -> Any:
        member = getattr(self._engine, verb)
        if not inspect.iscoroutinefunction(member):
            return member
        timed = self._timed(verb, member)
        self.__dict__[verb] = timed
        return timed

    async def start(self, request: StartRequest) -> Admission:
        """Start, and tell the observer of a duplicate."""
        admission: Admission = await self._timed("start", self._engine.start)(request)
        self._note_duplicate(request, admission)
        return admission

    async def start_many(self, requests: Sequence[StartRequest]) -> list[Admission]:
        """Start many, and tell the observer of each duplicate."""
        admissions: list[Admission] = await self._timed("start_many", self._engine.start_many)(requests)
        for request, admission in zip(requests, admissions, strict=True):
            self._note_duplicate(request, admission)
        return admissions

    def _note_duplicate(self, request: StartRequest, admission: Admission) -> None:
        decision, options = admission.decision, request.options
        if isinstance(decision, Admit):
            return
        reason = "joined" if isinstance(decision, Join) else "replayed"
        if isinstance(decision, Refuse):
            reason = decision.reason.value
        event = WorkerEvent(
            type=WorkerEventType.DUPLICATE,
            kind=options.kind,
            name=options.name,
            key=request.key,
            execution=admission.id,
            queue=options.queue,
            reason=reason,
        )
        try:
            self._observer.event(event)
        except Exception:
            log.exception("the observer raised on a duplicate; the start is not affected")

    def _timed(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            began, failure = time.perf_counter(), None
            try:
                return await call(*args, **kwargs)
            except BaseException as error:
                failure = error
                raise
            finally:
                try:
                    self._observer.observe(verb, time.perf_counter() - began, failure)
                except Exception:
                    log.exception("the observer raised on %s; the call is not affected", verb)

        return wrapper
