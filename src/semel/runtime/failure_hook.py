"""Calls `App(on_failure=...)`: one failure after the other, never in anybody's way."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from semel.engine.events import Failure
from semel.errors import InvalidValue

log = logging.getLogger("semel.worker")
OnFailure = Callable[[Failure], Awaitable[object] | object]
"""A hook for failures: a plain function, which is called in a thread, or an async one."""
MOST_WAITING: Final = 1000
"""Failures that wait for the hook; of more it does not hear, and the log says so."""
LONGEST: Final = 30.0
"""Seconds after which a call of the hook is given up."""
DRAIN_WITHIN: Final = 5.0
"""Seconds that a worker which stops waits for the hook."""
MOST_STUCK: Final = 4
"""Threads that may hang in a hook; while there are so many, it is not called."""


class FailureHook:
    """A hook and the failures that wait for it, for each event loop."""

    def __init__(self, hook: OnFailure) -> None:
        if not callable(hook):
            raise InvalidValue(f"on_failure={hook!r}: give a function, plain or async, that takes a semel.Failure.")
        self._hook = hook
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, deque[Failure]] = WeakKeyDictionary()
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
        self._stuck: list[threading.Thread] = []
        self._dropped = 0

    def submit(self, failure: Failure) -> None:
        """Call the hook soon. Never raises and never waits."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.setdefault(loop, deque())
        if len(waiting) >= MOST_WAITING:
            if not self._dropped:
                log.error("on_failure is slower than failures come: it does not hear of some")
            self._dropped += 1
            return
        waiting.append(failure)
        task = self._tasks.get(loop)
        if task is None or task.done():
            self._tasks[loop] = loop.create_task(self._call_all(waiting))

    async def drain(self) -> None:
        """Wait for what this loop has submitted, for a few seconds at most."""
        task = self._tasks.get(asyncio.get_running_loop())
        if task is not None and not task.done():
            await asyncio.wait([task], timeout=DRAIN_WITHIN)
            if not task.done():
                log.warning("on_failure has not returned within %g s: the worker stops without it", DRAIN_WITHIN)
                task.cancel()

    async def _call_all(self, waiting: deque[Failure]) -> None:
        while waiting:
            failure = waiting.popleft()
            try:
                async with asyncio.timeout(LONGEST):
                    await self._call(failure)
            except TimeoutError:
                log.error("on_failure(%s %s) has not returned within %g s", failure.name, failure.id, LONGEST)
            except Exception:
                log.exception("on_failure(%s %s) raised; nothing else is affected", failure.name, failure.id)
        if self._dropped:
            log.error("on_failure did not hear of %d failures: it was too slow", self._dropped)
            self._dropped = 0

    async def _call(self, failure: Failure) -> None:
        if inspect.iscoroutinefunction(self._hook):
            await self._hook(failure)
            return
        answer = await self._in_thread(failure)
        if inspect.isawaitable(answer):
            await answer

    async def _in_thread(self, failure: Failure) -> Any:
        """A thread of its own: a daemon, so that a hook which never returns cannot hold up the exit."""
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= MOST_STUCK:
            raise RuntimeError(f"{len(self._stuck)} earlier calls have not returned")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def call() -> None:
            value: Any = None
            raised: BaseException | None = None
            try:
                value = self._hook(failure)
            except BaseException as error:  # also SystemExit: a hook must not take the worker with it
                plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
                raised = error if plain else RuntimeError(f"it raised {error!r}")
            with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                loop.call_soon_threadsafe(_resolve, future, value, raised)

        thread = threading.Thread(target=call, name="semel-on-failure", daemon=True)
        thread.start()
        try:
            return await future
        except asyncio.CancelledError:
            self._stuck.append(thread)
            raise


def _resolve(future: asyncio.Future[Any], value: Any, raised: BaseException | None) -> None:
    if not future.done():
        if raised is None:
            future.set_result(value)
        else:
            future.set_exception(raised)
