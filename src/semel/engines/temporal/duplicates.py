"""A count of duplicates that did not run: gathered in memory, written in groups, never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

from semel.contract.decision import Reason
from semel.contract.records import Suppressed
from semel.contract.times import from_micros, instant, micros
from semel.engines.journal.patience import pause
from semel.engines.journal.script import Ask, Each, Line, Row, Script, procedure

log = logging.getLogger("semel.temporal")

FLUSH_AFTER: Final = 0.5
AT_ONCE: Final = 1000
MOST: Final = 10_000
"""Executions, by reason, that are counted while the database is away; beyond that, new ones are not."""
LONGEST_PAUSE: Final = 30.0


@procedure(Line.CONTROL, atomic=True)
def add(namespace: str, rows: list[Row]) -> Script[None]:
    """Add to what is counted. Rows: execution, reason, times, first_at, last_at, due_at."""
    yield Each("count_record_duplicates", rows, (namespace,))


@procedure(Line.READ, atomic=True)
def of(namespace: str, executions: list[str]) -> Script[list[Suppressed]]:
    """What was counted for these executions."""
    found = yield Each("record_duplicates", [(execution,) for execution in executions], (namespace,))
    return [
        Suppressed(execution, Reason(reason), times, from_micros(first), from_micros(last))
        for execution, reason, times, first, last in found
    ]


@procedure(Line.CONTROL, atomic=True)
def forget(namespace: str) -> Script[int]:
    """One batch of counts that nobody has added to for as long as they were to be kept: how many."""
    return len((yield Ask("forget_record_duplicates", (namespace, AT_ONCE))))


class Duplicates:
    """Counts of one event loop that are not yet written.

    A process that is killed loses those of its last half second; a reply that was lost may count a group twice.
    """

    def __init__(self, write: Callable[[list[Row]], Awaitable[None]]) -> None:
        self._write = write
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._warned = False
        self.lost = 0
        """Duplicates that were not counted: too many others were waiting to be written."""

    def add(self, execution: str, reason: Reason, at: datetime, keep: timedelta) -> None:
        """Count one. Touches nothing but memory, and never raises."""
        now = instant(at)
        count = self._counts.get((execution, reason.value))
        if count is None:
            if len(self._counts) >= MOST:
                if not self.lost:
                    log.warning("over %d executions have duplicates to be counted: new ones are not counted", MOST)
                self.lost += 1
                return
            count = self._counts[execution, reason.value] = [0, now, now, 0]
        _merge(count, 1, now, now, now + micros(keep))
        self._remind()

    def _remind(self) -> None:
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_soon())

    async def write(self) -> None:
        """Write all of them; what could not be written is kept, and the error is raised."""
        async with self._writing:
            try:
                await self._write_all()
            finally:
                if self._counts:  # the writer may have found none meanwhile, and left
                    self._remind()

    async def close(self) -> None:
        """Write what is left. A database that is away loses it, and says so."""
        async with self._writing:  # so that the writer is not stopped half way
            if self._writer is not None:
                self._writer.cancel()
            try:
                await self._write_all()
            except Exception as error:
                log.warning("counts of suppressed duplicates could not be written, and are lost: %s", error)

    async def _write_all(self) -> None:
        while self._counts:
            # In one order, so that two processes that count the same do not lock each other out.
            group = sorted(self._counts.items())[:AT_ONCE]
            for key, _ in group:
                del self._counts[key]
            try:
                await self._write([(*key, *count) for key, count in group])
            except BaseException:
                for key, (times, first, last, due) in group:
                    _merge(self._counts.setdefault(key, [0, first, last, 0]), times, first, last, due)
                raise
        self._warned = False

    async def _write_soon(self) -> None:
        """Until all is written, however long the database is away."""
        await asyncio.sleep(FLUSH_AFTER)
        tries = 0
        while self._counts:
            try:
                await self.write()
            except Exception as error:
                if not self._warned:
                    self._warned = True
                    log.warning("suppressed duplicates are counted in memory until they can be written: %s", error)
                await asyncio.sleep(pause(tries, LONGEST_PAUSE))
                tries += 1
        self._writer = None


def _merge(count: list[int], times: int, first: int, last: int, due: int) -> None:
    count[:] = [count[0] + times, min(count[1], first), max(count[2], last), max(count[3], due)]
