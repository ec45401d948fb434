"""An end for every call of an engine, also where a server is frozen and neither answers nor refuses."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeVar, cast

from semel.engine.protocol import Engine, Outcome
from semel.engine.schedules import EngineSchedules
from semel.engine.subscriptions import EngineEvents
from semel.errors import EngineUnavailable

T = TypeVar("T")
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
"""Verbs that may have much to do. They end when nothing has been answered for the time of a call."""
OWN_LIMITS: Final = frozenset({"start_many", "close"})
"""Those among LONG that see to their end themselves: each commit has one."""


class _Silence:
    """When the verb under way gives up, unless it hears something.

    Background tasks that a verb has begun share it by their context, and outlive the verb: for them it has no meaning.
    """

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._limit: asyncio.Timeout | None = limit
        self._seconds = seconds

    def note_answer(self) -> None:
        """Wait for the next answer as long as for this one, unless the limit is suspended."""
        if self._limit is not None and self._limit.when() is not None:
            self.resume()

    def suspend(self) -> None:
        """Wait without a limit."""
        self._wait(None)

    def resume(self) -> None:
        """Wait for the next answer, from now on."""
        self._wait(asyncio.get_running_loop().time() + self._seconds)

    def end(self) -> None:
        """The verb has ended."""
        self._limit = None

    def _wait(self, until: float | None) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(until)


_silence: ContextVar[_Silence | None] = ContextVar("semel_silence", default=None)
SLACK: Final = 0.5
"""Seconds that a caller's own timeout is exceeded by at most: an engine that answers keeps it by itself."""


def note_answer() -> None:
    """The database or the cluster has answered: a verb that has much to do may go on waiting."""
    silence = _silence.get()
    if silence is not None:
        silence.note_answer()


@contextmanager
def slow_work() -> Iterator[None]:
    """What is done here may take long without an answer, such as a migration of large tables."""
    silence = _silence.get()
    if silence is None:
        yield
        return
    silence.suspend()
    try:
        yield
    finally:
        silence.resume()


@asynccontextmanager
async def silence_limit(seconds: float, what: str) -> AsyncIterator[None]:
    """EngineUnavailable: nothing was answered for so many seconds, however long all of it takes."""
    limit = asyncio.timeout(seconds)
    silence = _Silence(limit, seconds)
    try:
        async with limit:
            before = _silence.set(silence)
            try:
                yield
            finally:
                silence.end()
                _silence.reset(before)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise no_answer(what, seconds) from error


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
    """The engine, with a time limit for every verb; for those in LONG it begins anew with each answer."""
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
        elif verb not in OWN_LIMITS and inspect.iscoroutinefunction(member):
            member = self._limited(verb, member)
        self.__dict__[verb] = member
        return member

    def _limited(self, verb: str, call: Callable[..., Any]) -> Callable[..., Any]:
        limit = silence_limit if verb in LONG else time_limit

        @functools.wraps(call)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            async with limit(self._seconds, verb):
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


async def wait_while_answered(
    waiting: Coroutine[Any, Any, T], probe: Callable[[], Awaitable[object]], seconds: float, what: str
) -> T:
    """What is waited for, however long it takes. EngineUnavailable: meanwhile `probe` was not answered.

    For a server that says nothing while it has nothing to say: without asking, one that is frozen looks the same.
    """
    task = asyncio.create_task(waiting)
    try:
        while not (await asyncio.wait([task], timeout=seconds / 2))[0]:
            async with time_limit(seconds / 2, what):
                await probe()
        return task.result()
    finally:
        task.cancel()


async def give_up_after(seconds: float, what: str, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work with a driver of the caller's. EngineUnavailable: it did not answer in time.

    Some drivers do not end when they are cancelled, while a server is frozen: then they are left behind.
    """
    task = asyncio.create_task(work)
    try:
        if (await asyncio.wait([task], timeout=seconds))[0]:
            return task.result()
    except asyncio.CancelledError:
        task.cancel()
        raise
    task.cancel()
    await asyncio.wait([task], timeout=SLACK)
    raise EngineUnavailable(
        f"{what}: no answer within {seconds:g} s. Close the connection: what it has not committed is gone."
    )


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
