"""Group commit: what gathers while one flush is under way goes out together with the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741


class Coalescer(Generic[I, O]):
    """A lone caller never waits for company; many callers share one commit.

    `flush` gets a list and answers with a list of the same length; an exception inside the list goes to
    its caller alone, an exception raised goes to all of that flush.
    """

    def __init__(self, flush: Callable[[list[I]], Awaitable[list[O | BaseException]]], most: int) -> None:
        self._flush = flush
        self._most = most
        self._items: list[I] = []
        self._futures: list[asyncio.Future[O]] = []
        self._flusher: asyncio.Task[None] | None = None

    def add(self, item: I) -> asyncio.Future[O]:
        """Hand in one item; the future resolves when it is committed."""
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._items.append(item)
        self._futures.append(future)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._run())
        return future

    def __len__(self) -> int:
        return len(self._items)

    async def drained(self) -> None:
        """Wait until all that was handed in has been answered."""
        while self._flusher is not None:
            await asyncio.wait([self._flusher])

    async def _run(self) -> None:
        try:
            while self._items:
                items, self._items = self._items[: self._most], self._items[self._most :]
                futures, self._futures = self._futures[: self._most], self._futures[self._most :]
                answers: list[O | BaseException]
                try:
                    answers = await self._flush(items)
                except BaseException as error:
                    answers = [error] * len(futures)
                for future, answer in zip(futures, answers, strict=True):
                    if future.cancelled():
                        continue
                    if isinstance(answer, BaseException):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            self._flusher = None
