"""What a worker of any engine does now and then besides its work: a list of chores, each in a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

from semel.engine.failure_log import RepeatedFailures
from semel.errors import EngineError, EngineUnavailable, phrase
from semel.runtime.outage import Outage
from semel.runtime.retries import pause

log = logging.getLogger("semel.worker")
LONGEST_PAUSE: Final = 60.0
"""Seconds until a chore that failed is tried again, at most."""


class Chore:
    """Something to do now and then. Times are in seconds of the monotonic clock."""

    def __init__(
        self,
        name: str,
        run: Callable[[], Awaitable[float | None]],
        *,
        first: float = 0.0,
        longest_pause: float = LONGEST_PAUSE,
        notices_outages: bool = False,
        speaks_for_all: bool = False,
    ) -> None:
        """`run` does it once and gives the seconds until it is due again; None: when `due_in` says so.

        One that fails is tried again after `longest_pause` at the latest. From one that `notices_outages` the worker
        learns whether the engine answers; from one that `speaks_for_all`, that it answers the others too.
        """
        self.name = name
        self.run = run
        self.longest_pause = longest_pause
        self.notices_outages = notices_outages
        self.speaks_for_all = speaks_for_all
        self.next_due = time.monotonic() + first
        self._alarm = asyncio.Event()

    def due_in(self, seconds: float) -> None:
        """Have it done in so many seconds, if it is not due sooner. Also while it is being done: then once more."""
        at = time.monotonic() + seconds
        if at < self.next_due:
            self.next_due = at
            self._alarm.set()

    async def wait(self) -> None:
        """Wait until it is due."""
        while (left := self.next_due - time.monotonic()) > 0:
            self._alarm.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if left == math.inf else left):
                    await self._alarm.wait()


def every(
    seconds: float,
    name: str,
    run: Callable[[], Awaitable[object]],
    *,
    first: float | None = None,
    speaks_for_all: bool = False,
) -> Chore:
    """A chore that is done once in so many seconds, also when it fails; so often that it notices outages."""

    async def run_once() -> float:
        await run()
        return seconds

    return Chore(
        name,
        run_once,
        first=seconds if first is None else first,
        longest_pause=seconds,
        notices_outages=True,
        speaks_for_all=speaks_for_all,
    )


class Chores:
    """The chores of one worker. None of them waits for another, and none ends because it fails."""

    def __init__(self, worker: str, outage: Outage, *chores: Chore) -> None:
        self._worker = worker
        self._outage = outage
        self._failures = RepeatedFailures()
        self._chores: dict[str, Chore] = {}
        self._tasks: dict[str, asyncio.Task[None]] | None = None
        for chore in chores:
            self.add(chore)

    def add(self, chore: Chore) -> None:
        """One more, under a name of its own; it begins at once if the others have begun."""
        if chore.name in self._chores:
            raise ValueError(f"there is a chore {chore.name!r} already")
        self._chores[chore.name] = chore
        if self._tasks is not None:
            self._tasks[chore.name] = asyncio.create_task(self._keep_doing(chore))

    def __getitem__(self, name: str) -> Chore:
        return self._chores[name]

    @property
    def started(self) -> bool:
        """Have they begun, and not been stopped?"""
        return self._tasks is not None

    @property
    def alive(self) -> bool:
        """Is each of them done when it is due?"""
        return self._tasks is not None and not any(task.done() for task in self._tasks.values())

    def start(self) -> None:
        """Begin: from now on each is done when it is due."""
        self._tasks = {name: asyncio.create_task(self._keep_doing(chore)) for name, chore in self._chores.items()}

    async def close(self) -> None:
        """Stop, also in the middle of one."""
        tasks, self._tasks = list((self._tasks or {}).values()), None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _keep_doing(self, chore: Chore) -> None:
        failed = 0
        while True:
            await chore.wait()
            chore.next_due = math.inf
            try:
                again = await chore.run()
            except Exception as error:
                failed += 1
                self._log(chore, error, failed)
                again = pause(failed, chore.longest_pause)
            else:
                failed = 0
                if chore.notices_outages:
                    self._outage.regained(chore.name, for_all=chore.speaks_for_all)
            if again is not None:
                chore.due_in(again)

    def _log(self, chore: Chore, error: Exception, failed: int) -> None:
        """A database that does not answer is one line, and none if it is known; a mistake has its traceback once."""
        if isinstance(error, EngineUnavailable) and chore.notices_outages:
            self._outage.lost(chore.name, error)
        elif isinstance(error, EngineError):
            known = failed > 1 or (isinstance(error, EngineUnavailable) and self._outage.lasts)
            level = logging.DEBUG if known else logging.WARNING
            log.log(level, "%s of %s, to be tried again: %s", chore.name, self._worker, phrase(error))
        else:
            what = f"{chore.name} of {self._worker} failed; it is tried again"
            self._failures.log(log, chore.name, error, what)
