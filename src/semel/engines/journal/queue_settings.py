"""Queue settings that this process has written, kept so that they can be written again if the database loses them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from semel.contract.times import micros
from semel.engines.journal.script import Ask, Line, Row, Script, Store, procedure
from semel.errors import EngineUnavailable
from semel.runtime.patience import persistently
from semel.settings import QueueSettings

CHECK_EVERY = 60.0
"""Seconds after which a process that goes on sending requests fills in what the database may have lost."""


@procedure(Line.CONTROL)
def set_queues(namespace: str, rows: list[Row]) -> Script[None]:
    """Queue settings, for every worker: name, rate_limit, concurrency, retention, dedup_window."""
    for row in rows:
        yield Ask("set_queue", (namespace, *row))


@procedure(Line.CONTROL)
def fill_queues(namespace: str, rows: list[Row]) -> Script[None]:
    """Queue settings where there are none; what the database has stays as it is."""
    for row in rows:
        yield Ask("fill_queue", (namespace, *row))


class WrittenQueueSettings:
    """The settings that this process has written last, and when they are to be written again.

    A value that is missing was lost with a restore or a failover, since settings are never deleted: it is filled in. A
    value that is there may be somebody's later wish: it is overwritten only if the database is known to have gone back.
    """

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._rows: list[Row] = []
        self._went_back = False
        self.due_at = math.inf
        """When to write again, in monotonic seconds."""

    async def write(self, queues: Mapping[str, QueueSettings]) -> None:
        """Write these settings, all of them, and remember them."""
        if rows := [_row(name, settings) for name, settings in queues.items()]:
            await persistently(self._store.run, set_queues, self._namespace, rows)
            self._rows = rows
            self.due_at = time.monotonic() + CHECK_EVERY

    def doubt(self) -> None:
        """Some may be lost."""
        if self._rows:
            self.due_at = -math.inf

    def database_went_back(self) -> None:
        """The database is as it was at an earlier time, and so are the settings."""
        self._went_back = bool(self._rows)
        self.doubt()

    async def write_again(self) -> None:
        """Write them again if it is time. If the database does not answer it is still time."""
        if time.monotonic() < self.due_at:
            return
        went_back, self._went_back = self._went_back, False
        self.due_at = time.monotonic() + CHECK_EVERY
        try:
            await self._store.run(set_queues if went_back else fill_queues, self._namespace, self._rows)
        except EngineUnavailable:
            self._went_back = self._went_back or went_back
            self.doubt()


def _row(name: str, settings: QueueSettings) -> Row:
    return (
        name,
        None if settings.rate_limit is None else str(settings.rate_limit),
        settings.concurrency,
        None if settings.retention is None else micros(settings.retention),
        None if settings.dedup_window is None else micros(settings.dedup_window),
    )
