"""Counts suppressed duplicates: in memory, written in groups, and never in the way of a request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from semel.contract.decision import Reason
from semel.errors import phrase
from semel.runtime.retries import pause

FLUSH_AFTER: Final = 0.5
"""Seconds for which counts are gathered before they are written."""
AT_ONCE: Final = 1000
MOST: Final = 10_000
"""Executions, by reason, that are counted while the database is away; beyond that, new ones are not."""
LONGEST_PAUSE: Final = 30.0
"""Seconds between two tries to write, at most."""

CountRow = tuple[Any, ...]
"""Execution, reason, how many, first_at, last_at, and until when they are to be kept."""


class DuplicateCounter:
    """Counts of one event loop that are not yet written.

    A process that is killed loses those of its last half second; a reply that was lost may count a group twice.
    """

    def __init__(self, write: Callable[[list[CountRow]], Awaitable[None]], log: logging.Logger) -> None:
        self._write = write
        self._log = log
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._away = self._closing = False
        self.lost = 0
        """Duplicates that were not counted: the database was away, and too many others were waiting to be written."""

    def add(self, execution: str, reason: Reason, at: int, keep_until: int = 0) -> None:
        """Count one duplicate. Touches nothing but memory, and never raises."""
        count = self._counts.get((execution, reason))
        if count is None:
            if self._away and len(self._counts) >= MOST:
                self._lose_one()
                return
            count = self._counts[execution, reason] = [0, at, at, keep_until]
        count[0] += 1
        if at > count[2]:
            count[2] = at
        if keep_until > count[3]:
            count[3] = keep_until
        if self._writer is None:
            self._remind()

    def _lose_one(self) -> None:
        if not self.lost:
            self._log.warning("over %d executions have duplicates to be counted: new ones are not counted", MOST)
        self.lost += 1

    def _remind(self) -> None:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_soon())

    async def write(self) -> None:
        """Write all counts; what could not be written is kept, and the error is raised."""
        async with self._writing:
            try:
                await self._write_all()
            finally:
                if self._counts:  # the writer may have found none meanwhile, and left
                    self._remind()

    async def close(self) -> None:
        """Write what is left, after what is being written. Raises what the database says if it is away."""
        self._closing = True
        try:
            async with self._writing:  # so that the writer is not stopped half way
                await self._write_all()
        finally:
            self.stop()
            self._closing = False

    def stop(self) -> None:
        """Try no longer to write."""
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None

    async def _write_all(self) -> None:
        counts, self._counts = self._counts, {}
        keys = sorted(counts)  # so that two processes that count the same do not lock each other out
        for at in range(0, len(keys), AT_ONCE):
            try:
                await self._write([(*key, *counts[key]) for key in keys[at : at + AT_ONCE]])
            except BaseException:
                for key in keys[at:]:
                    times, first, last, keep_until = counts[key]
                    _merge(self._counts.setdefault(key, [0, first, last, 0]), times, first, last, keep_until)
                raise
        self._away = False

    async def _write_soon(self) -> None:
        """Write the counts after a moment; while the database is away, try again until it is back."""
        await asyncio.sleep(FLUSH_AFTER)
        tries = 0
        while self._counts:
            try:
                await self.write()
            except Exception as error:
                self._note(error)
                await asyncio.sleep(pause(tries, LONGEST_PAUSE))
                tries += 1
        self._writer = None

    def _note(self, error: Exception) -> None:
        """Say once that the database is away; who closes the engine says so when the counts are lost."""
        if not self._away and not self._closing:
            why = phrase(error)
            self._log.warning("suppressed duplicates are counted in memory until they can be written: %s", why)
        self._away = True


def warn_of_lost_counts(log: logging.Logger, why: BaseException | str) -> None:
    """Say that counts are lost, since the database was away when their engine was closed."""
    log.warning("counts of suppressed duplicates could not be written, and are lost: %s", phrase(why))


def _merge(count: list[int], times: int, first: int, last: int, keep_until: int) -> None:
    count[0] += times
    if first < count[1]:
        count[1] = first
    if last > count[2]:
        count[2] = last
    if keep_until > count[3]:
        count[3] = keep_until
