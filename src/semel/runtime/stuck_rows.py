"""The rows that a sweeper's function yields, a few at a time: of a sync or async generator, or of a returned list."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from semel.define.sweeper import Sweep
from semel.runtime.threads import Threads

log = logging.getLogger("semel.sweepers")
Rows = tuple[list[Any], Exception | None]
"""What was yielded, and what the function raised after that."""


class StuckRows(Protocol):
    """What a sweeper's function yields."""

    async def take(self, most: int) -> Rows:
        """The next rows, at most so many; fewer: there are no more."""

    async def close(self) -> None:
        """Take no more, and let the function clean up."""


def open_rows(function: Callable[..., Any], sweep: Sweep) -> StuckRows:
    """Call the function of a sweeper: an async one in the event loop, a sync one in one thread from first to last."""
    if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function):
        return _AsyncRows(function, sweep)
    return _SyncRows(function, sweep)


class _AsyncRows:
    def __init__(self, function: Callable[..., Any], sweep: Sweep) -> None:
        self._function = function
        self._sweep = sweep
        self._rows: AsyncIterator[Any] | None = None

    async def take(self, most: int) -> Rows:
        rows: list[Any] = []
        try:
            if self._rows is None:
                self._rows = await _iterate(self._function(self._sweep))
            while len(rows) < most:
                rows.append(await anext(self._rows))
        except StopAsyncIteration:
            pass
        except Exception as error:
            return rows, error
        return rows, None

    async def close(self) -> None:
        closing = getattr(self._rows, "aclose", None)
        if closing is not None:
            await closing()


async def _iterate(called: Any) -> AsyncIterator[Any]:
    """What an async function gave, as something to go through."""
    if isinstance(called, Coroutine):
        called = await called
    if hasattr(called, "__aiter__"):
        found: AsyncIterator[Any] = aiter(called)
        return found
    return _each(iter(() if called is None else called))


async def _each(rows: Iterator[Any]) -> AsyncIterator[Any]:
    for row in rows:
        yield row


class _SyncRows:
    """All of it in one thread, since a connection to a database may belong to the thread that opened it."""

    def __init__(self, function: Callable[..., Any], sweep: Sweep) -> None:
        self._function = function
        self._sweep = sweep
        self._rows: Iterator[Any] | None = None
        self._threads = Threads(1)
        self._context = contextvars.copy_context()

    async def take(self, most: int) -> Rows:
        rows: Rows = await self._threads.run(self._context, lambda: self._take(most))
        return rows

    def _take(self, most: int) -> Rows:
        rows: list[Any] = []
        try:
            if self._rows is None:
                found = self._function(self._sweep)
                self._rows = iter(() if found is None else found)
            for row in islice(self._rows, most):
                rows.append(row)  # noqa: PERF402, what came before an error counts
        except Exception as error:
            return rows, error
        return rows, None

    async def close(self) -> None:
        closing = getattr(self._rows, "close", None)
        try:
            if closing is not None:
                await self._threads.run(self._context, closing)
        finally:
            self._threads.close()


async def close_rows(rows: StuckRows, sweeper: str, patience: float = 5.0) -> None:
    """Let the function clean up, for a few seconds at most; what it raises then is logged and changes nothing."""
    try:
        async with asyncio.timeout(patience):
            await rows.close()
    except TimeoutError:
        log.warning("sweeper %s: its function does not end; it is left behind", sweeper)
    except Exception:
        with suppress(Exception):
            log.warning("sweeper %s: its function raised when it was closed", sweeper, exc_info=True)
