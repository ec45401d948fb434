"""Notices work that no living worker has the function of, and names that two services use for different functions."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from semel.contract.times import from_micros
from semel.engine.protocol import Waiting, WorkerState
from semel.engine.served_functions import ServiceWarner, functions_of
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlQuery, procedure
from semel.runtime.chores import Chore

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

log = logging.getLogger("semel.worker")
FIRST: Final = 5.0
"""Seconds after its start: by then those that start with it have told what they serve."""
EVERY: Final = 10.0
RARELY: Final = 300.0
SHARE: Final = 50
"""Where a look takes long, as it does with thousands of lanes, so many times as long passes until the next one; but no
more than `RARELY`."""
FRONT: Final = 100
"""Rows of each lane that are looked at: what nobody takes stays in front."""


@procedure(ConnectionRole.CONTROL, atomic=True)
def declare(worker: int, functions: str) -> Script[None]:
    """Write down which functions a worker has."""
    yield SqlQuery("declare_functions", (worker, functions))


@procedure(ConnectionRole.READ, atomic=True)
def backlog(namespace: str) -> Script[list[Waiting]]:
    """All that waits, by function and queue."""
    found = yield SqlQuery("backlog", (namespace,))
    return [replace(Waiting(*row), since=None if at is None else from_micros(at)) for *row, at in found]


@procedure(ConnectionRole.READ)
def strangers(namespace: str, lanes: list[int], names: list[str]) -> Script[tuple[list[Waiting], list[Row]]]:
    """What waits in front of these lanes, or sleeps, under other names than these; and the workers that there are."""
    found = yield SqlQuery("strangers", (namespace, lanes, names, FRONT))
    workers = yield SqlQuery("workers", (namespace,))
    return [Waiting(*row) for row in found], workers


def worker_state(row: Row) -> WorkerState:
    """A row of the statement `workers`."""
    id_, name, queues, started, expires, functions, _ = row
    homes: dict[str, str] | None = None if functions is None else msgspec.json.decode(functions)
    names = None if homes is None else frozenset(homes)
    return WorkerState(id_, name, queues, from_micros(started), from_micros(expires), names, homes or {})


class Lookout:
    """Of one worker: looks around now and then, and warns once of each thing."""

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker
        self.warner = ServiceWarner(log)

    async def declare(self) -> None:
        """Tell the others what this worker serves."""
        functions = msgspec.json.encode(functions_of(self._worker.registry)).decode()
        await self._worker.store.run(declare, self._worker.id, functions)

    def chore(self) -> Chore:
        """For the list of the worker."""
        return Chore("functions", self.look, first=FIRST)

    async def look(self) -> float:
        """Warn of work that nobody has the function of, and of names that stand for two functions.

        Seconds until the next look.
        """
        began = time.monotonic()
        worker = self._worker
        found, rows = await worker.store.run(strangers, worker.namespace, worker.intake.ids, worker.names)
        took = time.monotonic() - began
        self.warner.warn(found, [worker_state(row) for row in rows], worker.names)
        return min(RARELY, max(EVERY, took * SHARE))
