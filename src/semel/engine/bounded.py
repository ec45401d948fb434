"""An end for every call of an engine, also where a server is frozen and neither answers nor refuses."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from semel.engine.protocol import Engine, Outcome
from semel.engine.schedules import EngineSchedules
from semel.engine.subscriptions import EngineEvents
from semel.errors import EngineUnavailable

LONG: Final = frozenset(
    {
        "start_many",
        "publish_many",
        "apply",
        "backfill",
        "plan",
        "carry_on",
        "reconcile",
        "forget",
        "replay",
        "migrate",
        "clean",
        "doctor",
        "tick",
        "close",
    }
)
"""Verbs that may have much to do. Each of their statements has its own end."""
SLACK: Final = 0.5
"""Seconds that a caller's own timeout is exceeded by at most: an engine that answers keeps it by itself."""


@asynccontextmanager
async def time_limit(seconds: float, what: str) -> AsyncIterator[None]:
    """EngineUnavailable: what is done here has not ended in time."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise no_answer(what, seconds) from error


def no_answer(what: str, seconds: float) -> EngineUnavailable:
    """The error of a call that has waited for so long."""
    return EngineUnavailable(
        f"{what}: no answer within {seconds:g} s. Whether it was done is not known: ask again, and under the same key "
        "if it has one. The setting call_timeout says how long a call waits."
    )


def bounded(engine: Engine, seconds: float) -> Engine:
    """The engine, with a time limit for every verb that does one thing. Those in LONG are as they were."""
    return cast(Engine, _BoundedEngine(engine, seconds))


class _Bounded:
    """Calls every coroutine function of something else within a time limit."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self.inner = inner
        self._seconds = seconds

    def __getattr__(self, verb: str) -> Any:
        member = getattr(self.inner, verb)
        if verb == "backfills":
            member = _Bounded(member, self._seconds)
        elif verb not in LONG and inspect.iscoroutinefunction(member):
            member = self._limited(verb, member)
        self.__dict__[verb] = member
        return member

    def _limited(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            async with time_limit(self._seconds, verb):
                return await call(*args, **kwargs)

        return wrapper


class _BoundedEngine(_Bounded):
    """An engine. A verb that waits for something to end has the timeout of its caller instead."""

    _events: EngineEvents | None = None

    async def outcome(self, id: str, timeout: float | None) -> Outcome | None:
        """See Engine. None also if nothing was heard of the execution in time."""
        return await _within(timeout, self.inner.outcome, id)

    async def answer(self, id: str, key: str, timeout: float | None) -> Outcome | None:
        """See Engine. None also if nothing was heard of the entity in time."""
        return await _within(timeout, self.inner.answer, id, key)

    async def schedules(self) -> EngineSchedules:
        """See Engine."""
        async with time_limit(self._seconds, "schedules"):
            return cast(EngineSchedules, _Bounded(await self.inner.schedules(), self._seconds))

    async def events(self) -> EngineEvents:
        """See Engine."""
        if self._events is None:  # an engine keeps them once it is open
            async with time_limit(self._seconds, "events"):
                self._events = cast(EngineEvents, _Bounded(await self.inner.events(), self._seconds))
        return self._events


async def _within(timeout: float | None, wait: Callable[..., Any], *args: str) -> Outcome | None:
    """What is waited for; None: it did not come in time, whatever it was that took so long."""
    if timeout is None:
        return cast("Outcome | None", await wait(*args, None))
    limit = asyncio.timeout(timeout + SLACK)
    try:
        async with limit:
            return cast("Outcome | None", await wait(*args, timeout))
    except TimeoutError:
        if limit.expired():
            return None
        raise
