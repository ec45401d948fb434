"""Group commit, as both limit programs use it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Flush = Callable[[list[Any]], Awaitable[Sequence[Any]]]


class Group:
    """What arrives while a flush is under way leaves together in the next one. There is no timer."""

    def __init__(self, flush: Flush, most: int = 1000) -> None:
        self._flush = flush
        self._most = most
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, item: Any) -> asyncio.Future[Any]:
        """A future of the item's answer; done only after the commit."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return future

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            try:
                answers = await self._flush([item for item, _ in batch])
            except Exception as error:
                for _, future in batch:
                    future.set_exception(error)
            else:
                for (_, future), answer in zip(batch, answers, strict=True):
                    future.set_result(answer)
        self._task = None


Claim = Callable[[], Awaitable[list[Any]]]
Run = Callable[[Any], Awaitable[None]]


async def work_off(claim: Claim, run: Run, ahead: int) -> int:
    """Run what can be claimed, and claim only while fewer than `ahead` run. Returns how many ran."""
    running: set[asyncio.Task[None]] = set()
    room = asyncio.Event()

    def ended(task: asyncio.Task[None]) -> None:
        running.discard(task)
        task.result()  # a failure is loud
        if len(running) < ahead:
            room.set()

    count = 0
    while rows := await claim():
        for row in rows:
            task = asyncio.create_task(run(row))
            running.add(task)
            task.add_done_callback(ended)
        count += len(rows)
        room.clear()
        if len(running) >= ahead:
            await room.wait()
    await asyncio.gather(*running)
    return count
