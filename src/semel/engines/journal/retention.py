"""Retention: slips say when to look at finished executions; the contract says what becomes of them."""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING

from semel.contract.retention import Retention, RetentionAction, clean_every, retention_action
from semel.contract.times import from_micros, micros, span
from semel.engines.journal.leases import adopt_orphans
from semel.engines.journal.script import ConnectionRole, Row, Script, SqlBatch, SqlQuery, procedure
from semel.runtime.chores import Chore

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

log = logging.getLogger("semel.worker")

SLIPS_AT_ONCE = 50
LOOK_AGAIN = 3_600_000_000
"""Microseconds until one that belongs to an open workflow is looked at again."""


@procedure(ConnectionRole.CONTROL)
def clean() -> Script[tuple[int, int]]:
    """One batch: (slips taken, executions looked at)."""
    slips = yield SqlQuery("due_slips", (SLIPS_AT_ONCE,))
    ids = [(id_,) for slip in slips for id_ in slip[0].split(",")]
    if not ids:
        return len(slips), 0
    strip: list[Row] = []
    forget: list[Row] = []
    again: list[Row] = []
    for id_, holds_key, finished, retention, window, at, needed in (yield SqlBatch("fates", ids)):
        if needed:
            again.append((at + LOOK_AGAIN, id_))
            continue
        keep = Retention(span(retention), span(window))
        finished_at, now = from_micros(finished), from_micros(at)
        match retention_action(keep, finished_at, bool(holds_key), now):
            case RetentionAction.KEEP:
                again.append((finished + micros(keep.retention), id_))
            case RetentionAction.STRIP:
                strip.append((id_,))
                again.append((finished + micros(keep.window), id_))
            case RetentionAction.FORGET:
                forget.append((id_,))
    for name, rows in (
        ("strip", strip),
        ("forget", forget),
        ("forget_flows", strip + forget),
        ("forget_seen", forget),
        ("slip", again),
    ):
        if rows:
            yield SqlBatch(name, rows)
    return len(slips), len(ids)


class Cleaning:
    """The retention that one worker sees to."""

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker

    @property
    def every(self) -> float:
        """Seconds: as the settings say, unless something that this worker runs is kept for less than that."""
        kept = [*(one.retention for one in self._worker.registry), *self._worker.intake.retentions]
        return clean_every(self._worker.settings.clean_every, kept).total_seconds()

    def chore(self) -> Chore:
        """For the list of the worker; those that start together do not clean together."""
        return Chore("retention", self._run, first=random.uniform(0, min(60.0, self.every)))

    async def _run(self) -> float:
        """Drop what is past its retention, in small batches, and put back claims that no lease covers."""
        worker, looked = self._worker, 0
        adopted = await worker.store.run(adopt_orphans)
        if adopted:
            worker.hub.work(adopted)
        while True:
            slips, executions = await worker.store.run(clean)
            looked += executions
            if not slips:
                break
        if looked:
            log.info("retention: looked at %d finished executions", looked)
        worker.doubt()  # nothing hints at it, and this looks through all work anyway
        return self.every * random.uniform(0.9, 1.1)
