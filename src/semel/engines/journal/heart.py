"""The heart of a worker: renews the lease, buries the dead, wakes what is due, cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from semel.contract.times import micros
from semel.define.context import Running
from semel.define.task import Task
from semel.engines.journal.cleaning import clean
from semel.engines.journal.leasing import (
    MOST_AT_ONCE,
    Pulse,
    adopt_orphans,
    find_cancelled,
    promote,
    pulse,
    recover,
)
from semel.errors import EngineUnavailable, LeaseLost

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

log = logging.getLogger("semel.worker")
SHORTEST = 0.005
MOST_BATCHES = 20
"""Of delayed tasks made ready in one beat; if there are more, the next beat comes at once."""


class Heart:
    """One beat is one statement, unless there is something to do."""

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker
        self._alarm = asyncio.Event()
        self._wanted = math.inf
        """The earliest time for which someone has asked for a beat, also while one is under way."""
        self._last = time.monotonic()
        self._ahead = 0.0
        """Seconds by which the clock of the database is ahead of ours."""
        self._layout = ""
        self._notes: dict[int, Running] = {}
        self._search: asyncio.Task[None] | None = None
        self._idle_at_last_beat = False
        self._clean_at = time.monotonic() + random.uniform(0, min(60.0, self._clean_every()))

    @property
    def beating(self) -> bool:
        """Has it beaten within the lease?"""
        return time.monotonic() - self._last < self._worker.settings.lease.total_seconds()

    def note(self, running: Running) -> None:
        """A task has progress to report; also called from threads."""
        self._notes[running.token] = running

    def due(self, at: int) -> None:
        """Something becomes ready at this time, by the clock of the database."""
        self.due_in(at / 1_000_000 - time.time() - self._ahead)

    def due_in(self, seconds: float) -> None:
        """Something becomes ready in so many seconds: beat then."""
        at = time.monotonic() + max(SHORTEST, seconds)
        if at < self._wanted:
            self._wanted = at
            self._alarm.set()

    def cancel_came(self, id_: str) -> None:
        """Someone wants an execution cancelled ("": perhaps): see whether it is one of ours."""
        worker = self._worker
        ours = any(claim.execution == id_ for claim, _, _ in worker.running.values()) if id_ else worker.running
        if ours and (self._search is None or self._search.done()):
            self._search = asyncio.get_running_loop().create_task(self._find_cancels())

    async def _find_cancels(self) -> None:
        worker = self._worker
        held = [(claim.lane, claim.seq) for claim, _, _ in worker.running.values()]
        with contextlib.suppress(EngineUnavailable):  # the next beat asks again
            self._interrupt(await worker.store.run(find_cancelled, worker.id, held))

    def _interrupt(self, ids: list[str]) -> None:
        wanted = set(ids)
        for claim, running, task in list(self._worker.running.values()):
            if claim.execution in wanted and not running.cancelled:
                running.cancelled = True
                definition = self._worker.registry.get(claim.name)
                if isinstance(definition, Task) and definition.is_async:
                    task.cancel()

    async def beat(self) -> None:
        """One beat, and a rest until the next thing that is due."""
        worker = self._worker
        self._wanted = math.inf
        state = await self._pulse()
        self._last = time.monotonic()
        self._ahead = state.now / 1_000_000 - time.time()
        if state.layout != self._layout:
            self._layout = state.layout
            await worker.intake.refresh()
            self._clean_at = min(self._clean_at, time.monotonic() + self._clean_every())
            worker.wake.set()
        if state.next_expiry is not None and state.next_expiry < state.now:
            lanes = await worker.store.run(recover)
            worker.hub.work(lanes)
        if state.next_due is not None and state.next_due <= state.now:
            await self._promote()
        if state.work and worker.room > 0:
            if self._idle_at_last_beat and not worker.running and not worker.intake.guarded:
                # There was work and nobody told us: the announcements do not arrive.
                await worker.store.relisten()
            worker.wake.set()
        self._idle_at_last_beat = not worker.running
        worker.flows.news(())
        if time.monotonic() >= self._clean_at:
            await self._clean()
        await self._rest(state)

    async def _pulse(self) -> Pulse:
        worker = self._worker
        notes, self._notes = self._notes, {}
        held = {seq: (claim.lane, seq) for seq, (claim, _, _) in worker.running.items()}
        progress = [(*held[seq], note.progress) for seq, note in notes.items() if seq in held]
        state, cancelled = await worker.store.run(
            pulse, worker.id, micros(worker.settings.lease), worker.intake.ids, worker.names, progress,
            list(held.values()),
        )  # fmt: skip
        if state is None:
            raise LeaseLost(f"worker {worker.name} was silent for longer than its lease")
        self._interrupt(cancelled)
        return state

    async def _promote(self) -> None:
        for _ in range(MOST_BATCHES):
            lanes = await self._worker.store.run(promote, MOST_AT_ONCE)
            if lanes:
                self._worker.hub.work(set(lanes))
            if len(lanes) < MOST_AT_ONCE:
                return

    async def _clean(self) -> None:
        """What is due, in small batches; after a sixth of the lease a beat comes between."""
        worker = self._worker
        looked = 0
        enough = time.monotonic() + worker.settings.lease.total_seconds() / 6
        adopted = await worker.store.run(adopt_orphans)
        if adopted:
            worker.hub.work(adopted)
        while True:
            slips, executions = await worker.store.run(clean)
            looked += executions
            if not slips:
                self._clean_at = time.monotonic() + self._clean_every() * random.uniform(0.9, 1.1)
                break
            if time.monotonic() > enough:
                break
        if looked:
            log.info("retention: looked at %d finished executions", looked)

    def _clean_every(self) -> float:
        """Hourly unless something this worker runs is kept for less than that."""
        kept = [task.retention for task in self._worker.registry if task.retention is not None]
        kept += self._worker.intake.retentions
        shortest = max(min(kept, default=timedelta.max), timedelta(seconds=5))
        return min(self._worker.settings.clean_every, shortest).total_seconds()

    async def _rest(self, state: Pulse) -> None:
        """Until a third of the lease has passed, or until something is due, whichever is first."""
        pause = self._worker.settings.lease.total_seconds() / 3
        if state.next_expiry is not None:
            # A little late and uneven, so that not every worker gets up for the same funeral.
            pause = min(pause, (state.next_expiry - state.now) / 1e6 + random.uniform(0.05, 0.5))
        if state.next_due is not None:  # what was due has been seen to; the next beat tells what comes after it
            pause = min(pause, (state.next_due - state.now) / 1e6)
        pause = min(pause, self._clean_at - time.monotonic())
        until = time.monotonic() + max(SHORTEST, pause)
        while (left := min(until, self._wanted) - time.monotonic()) > 0:
            self._alarm.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._alarm.wait()
