"""The heart of a worker: renews its lease, and sees to what a heartbeat finds: dead workers, due work, new lanes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from semel.contract.times import micros
from semel.define.context import Running
from semel.define.task import Task
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.engine.failure_log import RepeatedFailures, log_failure
from semel.engines.journal.leases import (
    MOST_AT_ONCE,
    Pulse,
    Reachability,
    find_cancelled,
    promote,
    pulse,
    recover,
)
from semel.engines.journal.settle import report_lost
from semel.errors import EngineUnavailable, LeaseLost
from semel.runtime.retries import Reminder, pause

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

log = logging.getLogger("semel.worker")
SHORTEST = 0.005
MOST_BATCHES = 20
"""Of delayed tasks made ready in one beat; if there are more, the next beat comes at once."""
PATIENCE = 1 / 3
"""How long a heartbeat may take, as a part of the lease: there must be time for another on a fresh connection."""
LEAST_PATIENCE = 0.25
RECOVERED = 0.3
"""Seconds from the recovery of dead workers' tasks to the next look for dead workers."""


class Heart:
    """One beat is one statement, unless there is something to do."""

    def __init__(self, worker: JournalWorker) -> None:
        self._worker = worker
        self._failures = RepeatedFailures()
        self._alarm = asyncio.Event()
        self._wanted = math.inf
        """The earliest time for which someone has asked for a beat, also while one is under way."""
        self._last = time.monotonic()
        self._ahead = 0.0
        """Seconds by which the clock of the database is ahead of ours."""
        self._layout = ""
        self._beats = (0, 0)
        """The worker's number, and how often the database said that its lease was renewed."""
        self._tables = 0
        self._opened = worker.store.reconnections
        self._notes: dict[int, Running] = {}
        self._search: asyncio.Task[None] | None = None
        self._idle_at_last_beat = False
        self.reachability = Reachability()
        self._waits = False
        """Has it been logged that workers are overdue and are not taken for dead yet?"""
        self._follow_up: asyncio.Task[None] | None = None
        """Does what a beat has found."""
        self._follow_ups_failed = 0
        self._follow_up_after = 0.0
        self._beat_after_follow_up = False
        """Did a beat find something to do while that of another one was being done?"""
        self._unanswered = False
        """Has a heartbeat had no answer since the last one that had?"""
        self._verifying: asyncio.Task[None] | None = None
        self._silence = Reminder()

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
            log_failure(self._search, log, f"worker {worker.name} could not look for cancelled tasks")

    async def _find_cancels(self) -> None:
        worker = self._worker
        held = [claim.fence for claim, _, _ in worker.running.values()]
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
        """One beat, and a rest until the next thing that is due.

        What it finds is done in a task of its own: a lock or a slow disk must not keep it from beating.
        """
        worker = self._worker
        self._wanted = math.inf
        state = await self._pulse()
        self._ahead = state.now / 1_000_000 - time.time()
        ready, waiting = self._judge(state)
        if state.work and worker.room > 0:
            if self._idle_at_last_beat and not worker.running and not worker.intake.guarded:
                # There was work and nobody told us: the announcements do not arrive.
                await worker.store.relisten()
            worker.wake.set()
        self._idle_at_last_beat = not worker.running
        worker.flows.news(())
        self._begin_follow_up(state, ready)
        await self._rest(state, waiting)

    async def _pulse(self) -> Pulse:
        worker = self._worker
        notes, self._notes = self._notes, {}
        held = {token: claim.fence for token, (claim, _, _) in worker.running.items()}
        progress = [(*held[token], note.progress) for token, note in notes.items() if token in held]
        lease = worker.settings.lease.total_seconds()
        patience = max(LEAST_PATIENCE, lease * PATIENCE)
        asked = time.monotonic()
        try:
            async with asyncio.timeout(patience):
                state, cancelled = await worker.store.run(
                    pulse,
                    worker.id,
                    micros(worker.settings.lease),
                    worker.intake.ids,
                    worker.names,
                    progress,
                    list(held.values()),
                )
        except (TimeoutError, EngineUnavailable) as error:
            self._notes = {**notes, **self._notes}
            silent = time.monotonic() - self._last
            if silent > lease and self._silence.due():
                log.error("worker %s is silent for %.1f s, longer than its lease of %g s", worker.name, silent, lease)
            if isinstance(error, TimeoutError):
                self._unanswered = True
                raise EngineUnavailable(f"no answer to a heartbeat within {patience:.1f} s.") from error
            raise
        if state is None:
            raise LeaseLost(_lost(worker.name, asked - self._last, lease))
        self._look_back(state)
        worker.outage.regained("heart")
        self._silence.over()
        self._last = time.monotonic()
        self.reachability.answered(micros(worker.settings.lease), asked, self._last, state.now)
        self._interrupt(cancelled)
        if self._unanswered:  # a connection that carries nothing any more is seldom alone
            self._unanswered = False
            if self._verifying is None or self._verifying.done():
                self._verifying = asyncio.create_task(worker.store.verify(patience))
                log_failure(self._verifying, log, f"worker {worker.name} could not check its connections")
        return state

    def _look_back(self, state: Pulse) -> None:
        """Has the database forgotten a heartbeat, or may it have, since the connection is another one?

        Then it may have forgotten claims, endings and lanes too.
        """
        worker, opened = self._worker, self._worker.store.reconnections
        known, self._beats = self._beats, (worker.id, state.beats)
        tables, self._tables = self._tables, state.tables
        if known[0] != worker.id:
            pass  # the first one under a new lease
        elif state.beats <= known[1]:
            log.error(
                "worker %s finds %d heartbeats where it had made %d: the database went back in time (a restore, or a "
                "failover that lost the last transactions). It drops what the database does not know any more",
                worker.name,
                state.beats - 1,
                known[1],
            )
            worker.doubt(went_back=True)
        elif state.tables != tables:
            log.warning(
                "worker %s finds that the tables were replaced since its last heartbeat, as by a restore (or a vacuum "
                "that rewrites them): it compares what it holds with what the database says it holds",
                worker.name,
            )
            worker.doubt(went_back=True)
        elif opened != self._opened:
            worker.doubt()
        self._opened = opened

    def _judge(self, state: Pulse) -> tuple[list[int], list[int]]:
        """The leases that have run out, by their length: whose workers are dead, and who still may come back."""
        ready: list[int] = []
        waiting: list[int] = []
        for lease in map(int, state.overdue.split(",") if state.overdue else ()):
            self.reachability.track(lease, self._last)
            (waiting if self.reachability.missing(lease, self._last) else ready).append(lease)
        if waiting and not self._waits:
            log.warning(
                "other workers are silent for longer than their lease; they have another %.1f s to come back, since %s",
                max(self.reachability.missing(lease, self._last) for lease in waiting),
                self.reachability.why,
            )
        self._waits = bool(waiting)
        return ready, waiting

    def _begin_follow_up(self, state: Pulse, overdue: list[int]) -> None:
        """Do what a beat has found. While that of another one is being done, a beat right after it finds it again."""
        found = bool(overdue) or state.layout != self._layout
        if self._busy:
            self._beat_after_follow_up = found
            return
        if (wait := self._follow_up_after - time.monotonic()) > 0:
            if found:
                self.due_in(wait)
            return
        todo: list[Callable[[], Awaitable[None]]] = []
        if overdue:
            todo.append(lambda: self._recover(state.now, overdue))
        if state.next_due is not None and state.next_due <= state.now:
            todo.append(self._promote)
        # What comes after this, another beat tells. A recovery passes over one that holds a lock: not at once, then.
        next_beat = (RECOVERED if overdue else 0.0) if todo else None
        if state.layout != self._layout:
            todo.insert(0, lambda: self._refresh(state.layout))
        if todo:
            self._follow_up = asyncio.create_task(self._do(todo, next_beat))

    @property
    def _busy(self) -> bool:
        return self._follow_up is not None and not self._follow_up.done()

    async def _do(self, todo: list[Callable[[], Awaitable[None]]], next_beat: float | None) -> None:
        """One after the other; one that fails does not keep the others from being done."""
        failed = False
        for once in todo:
            try:
                await once()
            except EngineUnavailable as error:
                failed = True
                if not self._worker.outage.lasts:
                    log.warning("heart of %s: %s", self._worker.name, error)
            except Exception as error:
                failed = True
                self._failures.log(log, "heart", error, f"heart of {self._worker.name} failed; it goes on")
        self._follow_ups_failed = self._follow_ups_failed + 1 if failed else 0
        wait = pause(self._follow_ups_failed) if failed else next_beat
        self._follow_up_after = time.monotonic() + (wait or 0.0)
        self._follow_up = None
        self._alarm.set()
        if self._beat_after_follow_up and wait is None:
            wait = 0.0
        self._beat_after_follow_up = False
        if wait is not None:
            self.due_in(wait)

    async def close(self) -> None:
        """Stop what is being done besides beating."""
        beside = [task for task in (self._follow_up, self._verifying, self._search) if task is not None]
        for task in beside:
            task.cancel()
        if beside:
            await asyncio.wait(beside)

    async def _refresh(self, layout: str) -> None:
        await self._worker.intake.refresh()
        self._layout = layout
        self._worker.chores["retention"].due_in(self._worker.cleaning.every)
        self._worker.wake.set()

    async def _recover(self, as_of: int, leases: list[int]) -> None:
        """Put back the tasks of workers that were overdue at a heartbeat, unless they have come back since."""
        failed: list[str] = []
        lanes = await self._worker.store.run(recover, as_of, leases, failed)
        if lanes:
            log.warning("took back %d tasks, workflows and entities of workers that are dead", len(lanes))
            if self._worker.events.observed:
                self._worker.events.emit(WorkerEvent(type=WorkerEventType.RECOVERED, count=len(lanes)))
        self._worker.hub.work(lanes)
        await report_lost(self._worker, failed)

    async def _promote(self) -> None:
        for _ in range(MOST_BATCHES):
            lanes = await self._worker.store.run(promote, MOST_AT_ONCE)
            if lanes:
                self._worker.hub.work(set(lanes))
            if len(lanes) < MOST_AT_ONCE:
                return

    async def _rest(self, state: Pulse, waiting: list[int]) -> None:
        """Until a third of the lease has passed, or until something is due, whichever is first."""
        uneven = random.uniform(0.05, 0.5)
        while (left := min(self._next_beat(state, waiting, uneven), self._wanted) - time.monotonic()) > 0:
            self._alarm.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._alarm.wait()

    def _next_beat(self, state: Pulse, waiting: list[int], uneven: float) -> float:
        pause = self._worker.settings.lease.total_seconds() / 3
        if state.next_expiry is not None:
            # A little late and uneven, so that only one worker recovers the tasks of a dead one.
            pause = min(pause, (state.next_expiry - state.now) / 1e6 + uneven)
        for lease in waiting:  # without gaps, as those with this lease have none
            pause = min(pause, lease / 3e6, self.reachability.missing(lease, self._last) + uneven)
        at = self._last + pause
        if state.next_due is not None and not self._busy:
            at = min(at, max(self._follow_up_after, self._last + (state.next_due - state.now) / 1e6))
        return max(at, self._last + SHORTEST)


def _lost(name: str, silent: float, lease: float) -> str:
    if silent > lease:
        return f"worker {name} was silent for longer than its lease"
    return (
        f"worker {name} has no lease any more, although it renewed it {silent:.1f} s ago: the database went back in "
        "time (a restore, or a failover that lost the last transactions), or somebody took the lease away"
    )
