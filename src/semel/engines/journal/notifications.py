"""Who waits for what in this process: workers for work, callers for results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class Hub:
    """News of one engine, from itself and from its store."""

    def __init__(self) -> None:
        self.on_work: list[Callable[[Iterable[int]], None]] = []
        self.on_due: list[Callable[[int], None]] = []
        self.on_cancel: list[Callable[[str], None]] = []
        self.on_news: list[Callable[[Iterable[str]], None]] = []
        self.on_schedules: list[Callable[[], None]] = []
        self._waiting: dict[str, set[Bell]] = {}

    def work(self, lanes: Iterable[int]) -> None:
        """These lanes have work; no lanes means: some lane."""
        for tell in self.on_work:
            tell(lanes)

    def due(self, at: int) -> None:
        """Something becomes ready at this time, in microseconds."""
        for tell in self.on_due:
            tell(at)

    def cancel(self, id: str) -> None:
        """Someone wants this execution cancelled; "" means: some execution."""
        for tell in self.on_cancel:
            tell(id)

    def news(self, ids: Iterable[str]) -> None:
        """Something came for these flows; no ids means: for some flow."""
        for tell in self.on_news:
            tell(ids)

    def schedules(self) -> None:
        """Some schedule was created, changed or resumed."""
        for tell in self.on_schedules:
            tell()

    def done(self, ids: Iterable[str]) -> None:
        """These executions have ended."""
        if self._waiting:
            for id_ in ids:
                for bell in self._waiting.get(id_, ()):
                    bell.ring()

    def poll_everything(self) -> None:
        """Something happened elsewhere: everybody has a look."""
        self.work(())
        self.cancel("")
        self.news(())
        self.schedules()
        self.done(self._waiting)

    async def until(
        self,
        id_: str,
        look: Callable[[], Awaitable[T | None]],
        timeout: float | None,
        poll: tuple[float, float],
        *,
        head_start: float = 0.0,
    ) -> T | None:
        """Look, and look again whenever there may be news of an execution, until there is something to see.

        None: there was nothing within `timeout`. `poll` is how long news may fail to come: at first, and at most.
        `head_start`: so many seconds the first look waits for news, since before there is hardly anything to see.
        """
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        pause, longest = poll
        bell = Bell()
        self._waiting.setdefault(id_, set()).add(bell)
        try:
            if head_start > 0 and (timeout is None or head_start < timeout):
                await bell.wait(head_start)
            while True:
                bell.rung = False
                found = await look()
                if found is not None:
                    return found
                left = pause if end is None else min(pause, end - loop.time())
                if left <= 0:
                    return None
                await bell.wait(left)
                pause = min(longest, pause * 1.5)
        finally:
            watchers = self._waiting[id_]
            watchers.discard(bell)
            if not watchers:
                del self._waiting[id_]


class Bell:
    """Wakes one who waits, at once or after a while; lighter than an Event with a timeout."""

    __slots__ = ("_sleeper", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._sleeper: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """There may be news."""
        self.rung = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self, seconds: float | None) -> None:
        """Until it rings, or so many seconds have passed."""
        if self.rung:
            return
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        alarm = None if seconds is None else loop.call_later(seconds, self.ring)
        try:
            await self._sleeper
        finally:
            if alarm is not None:
                alarm.cancel()
