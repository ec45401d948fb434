"""Group commit: what gathers while one flush is under way goes out together with the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar, cast

from semel.engine.bounded import no_answer

Item = TypeVar("Item")
Answer = TypeVar("Answer")

HEAVIEST = 4 << 20
"""Bytes in one flush, beyond which the rest waits for the next; a single item may be heavier."""


def fitting(items: Sequence[Item], most: int, weigh: Callable[[Item], int], heaviest: int = HEAVIEST) -> int:
    """How many of the first items go into one flush: at most so many, and not too heavy together."""
    weight = 0
    for count, item in enumerate(items[:most]):
        weight += weigh(item)
        if weight > heaviest and count:
            return count
    return min(len(items), most)


class Coalescer(Generic[Item, Answer]):
    """A lone caller never waits for company; many callers share one commit, and where `at_once` allows it another
    one begins before it has ended, as soon as that one is full.

    `flush` gets a list and answers with a list of the same length; an exception inside the list goes to
    its caller alone, an exception raised goes to all of that flush. A flush that takes longer than the `time_limit` in
    seconds ends with EngineUnavailable, for its callers and for all that wait for it.
    """

    def __init__(
        self,
        flush: Callable[[list[Item]], Awaitable[list[Answer | BaseException]]],
        most: int,
        weigh: Callable[[Item], int] = lambda item: 0,
        heaviest: int = HEAVIEST,
        at_once: int = 1,
        time_limit: float | None = None,
    ) -> None:
        self._flush = flush
        self._most = most
        self._weigh = weigh
        self._heaviest = heaviest
        self._items: list[Item] = []
        self._futures: list[asyncio.Future[Answer]] = []
        self._at_once = at_once
        self._time_limit = time_limit
        self._flushers: set[asyncio.Task[None]] = set()
        self._alone = True
        """The last flush held one item: whoever comes next is probably alone as well."""
        self._inline = False

    def ask(self, item: Item) -> Awaitable[Answer]:
        """The same as `add`; but a lone caller flushes by itself, when it awaits this, which spares it a task."""
        return self._by_itself(item) if self._alone and not self._under_way else self.add(item)

    async def _by_itself(self, item: Item) -> Answer:
        if self._under_way:  # since it asked
            return await self.add(item)
        self._inline = True
        try:
            (answer,) = await self._flush_in_time([item])
        finally:
            self._inline = False
            if self._items:
                self._begin()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def add(self, item: Item) -> asyncio.Future[Answer]:
        """Hand in one item; the future resolves when it is committed."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._items.append(item)
        self._futures.append(future)
        flushers = len(self._flushers)
        if not (flushers or self._inline) or (flushers < self._at_once and len(self._items) >= self._most):
            self._begin()
        return future

    def _begin(self) -> None:
        flusher = asyncio.create_task(self._run())
        self._flushers.add(flusher)
        flusher.add_done_callback(self._flushers.discard)

    @property
    def _under_way(self) -> bool:
        return self._inline or bool(self._flushers)

    @property
    def waiting(self) -> list[Item]:
        """What was handed in and is not yet under way."""
        return self._items

    async def drained(self) -> None:
        """Wait until all that was handed in has been answered."""
        while self._under_way:
            await asyncio.wait(self._flushers or [asyncio.ensure_future(asyncio.sleep(0.001))])

    async def _flush_in_time(self, items: list[Item]) -> list[Answer | BaseException]:
        if self._time_limit is None:
            return await self._flush(items)
        limit = asyncio.timeout(self._time_limit)
        try:
            async with limit:
                return await self._flush(items)
        except TimeoutError as error:
            if not limit.expired():
                raise
            silence = no_answer("the database", self._time_limit)
            waiting, self._items, self._futures = self._futures, [], []
            for future in waiting:
                if not future.done():
                    future.set_exception(silence)
            raise silence from error

    async def _run(self) -> None:
        try:
            while self._items:
                cut = fitting(self._items, self._most, self._weigh, self._heaviest)
                self._alone = cut == 1
                items, self._items = self._items[:cut], self._items[cut:]
                futures, self._futures = self._futures[:cut], self._futures[cut:]
                answers: list[Answer | BaseException]
                try:
                    answers = await self._flush_in_time(items)
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
            self._flushers.discard(cast("asyncio.Task[None]", asyncio.current_task()))
