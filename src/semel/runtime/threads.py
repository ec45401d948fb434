"""Threads for sync tasks: as many as needed up to a limit, and one wake-up of the loop for many results."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

Job = tuple[Context, Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """A pool of one event loop. Threads are daemons: a task that never returns cannot hold up the exit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._results: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._told = False
        self._threads = 0
        self._open = 0  # jobs whose results have not been delivered; only the loop counts, so that it is never wrong

    def run(self, context: Context, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a function in a thread, in its own context."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._open += 1
        if self._threads < min(self._open, self._most):
            self._threads += 1
            threading.Thread(target=self._work, name=f"semel-task-{self._threads}", daemon=True).start()
        self._jobs.put((context, call, future))
        return future

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            context, call, future = job
            value: Any = None
            failure: BaseException | None = None
            try:
                value = context.run(call)
            except BaseException as error:
                failure = error
            self._results.append((future, value, failure))
            if not self._told:
                self._told = True
                with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
                    self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._told = False
        while self._results:
            future, value, failure = self._results.popleft()
            self._open -= 1
            if future.done():
                continue
            if failure is None:
                future.set_result(value)
            elif isinstance(failure, StopIteration | GeneratorExit):  # these mean something to a coroutine
                future.set_exception(RuntimeError(f"the task raised {failure!r}"))
            else:
                future.set_exception(failure)

    def close(self) -> None:
        """Idle threads end; busy ones end with the process."""
        for _ in range(self._threads):
            self._jobs.put(None)
