"""The thread that called the sync face. Connections without await may be used in no other one.

The verbs run in the loop of the sync face. While they do, the thread that called waits, and does what they need done
on its connection: `sqlite3` and Django refuse any other thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Final, TypeVar

T = TypeVar("T")
_serving: Final[ContextVar[CallerThread | None]] = ContextVar("semel_caller_thread", default=None)


class CallerThread:
    """A thread that waits for a verb, and lends itself to it meanwhile."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    @contextlib.contextmanager
    def offered(self) -> Iterator[None]:
        """Verbs that are handed to a loop inside of this find the thread."""
        before = _serving.set(self)
        try:
            yield
        finally:
            _serving.reset(before)

    def serve(self, verb: concurrent.futures.Future[T]) -> T:
        """Do what the verb needs done in this thread until it has ended; what it gave."""
        verb.add_done_callback(lambda _: self._work.put(None))
        try:
            while (work := self._work.get()) is not None:
                work()
        except BaseException:  # Ctrl-C: nobody serves the verb any more
            verb.cancel()
            raise
        return verb.result()

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in the thread, from the loop. Who waits no longer does not interrupt what has begun."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run_here() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)
                if not isinstance(error, Exception):
                    raise

        self._work.put(run_here)
        return await asyncio.wrap_future(done)


def calling_thread() -> CallerThread | None:
    """The thread that called the sync face; None: the verb was awaited."""
    return _serving.get()


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end that waits for nothing, as those do that use a connection without await."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise AssertionError("a connection without await has nothing to wait for")
