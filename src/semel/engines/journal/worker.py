"""The worker: claims, runs, settles. It has a heart, and chores for what is to be done now and then."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

from semel.contract.lifecycle import Status
from semel.contract.times import micros
from semel.define.context import Running
from semel.define.registry import Registry
from semel.engine import undecodable_input
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.engine.failure_log import RepeatedFailures
from semel.engines.journal.claims import Claim, Intake, random_number, release
from semel.engines.journal.control import WrittenQueueSettings
from semel.engines.journal.flows import Flows
from semel.engines.journal.group_commit import Coalescer
from semel.engines.journal.heartbeat import Heart
from semel.engines.journal.holdings import UnansweredClaims, confirm, give_back, reconcile
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.leases import register, retire
from semel.engines.journal.notifications import Hub
from semel.engines.journal.retention import Cleaning
from semel.engines.journal.script import ConnectionRole, Store
from semel.engines.journal.settle import MOST_AT_ONCE, Ending, ending_of, leave, put_off, report_endings, settle
from semel.engines.journal.turns import unpark
from semel.engines.journal.unserved import Lookout
from semel.errors import EngineError, EngineUnavailable, LeaseLost, phrase
from semel.runtime.attempt import Interrupted, run_attempt
from semel.runtime.chores import Chore, Chores
from semel.runtime.events import Events
from semel.runtime.outage import Outage
from semel.runtime.retries import pause, retry_unavailable
from semel.runtime.threads import Threads
from semel.settings import Settings

log = logging.getLogger("semel.worker")
BEGUN_MOST = 2
"""So many tasks may be begun and not recorded, as a multiple of the concurrency: they run again if the worker dies."""
GATHER = 0.003
ROUND = 1.0
WRITING_RESULTS = "cannot write results, trying again"
LEAVE = 4.0
"""Seconds that a worker which stops waits for the database after its grace: results are written, claims given back."""
NEEDS = (ConnectionRole.CLAIM, ConnectionRole.SETTLE, ConnectionRole.CONTROL, ConnectionRole.BEAT)
"""What a worker must have a connection for before it takes work, or it could not end what it began."""
NEEDS_OF_FLOWS = (*NEEDS, ConnectionRole.READ, ConnectionRole.ADMIT)


class JournalWorker:
    """Runs tasks of one namespace, in this event loop and in threads beside it."""

    def __init__(
        self,
        store: Store,
        namespace: str,
        hub: Hub,
        registry: Registry,
        queues: Sequence[str] | None,
        settings: Settings,
        lanes: Lanes,
        queue_settings: WrittenQueueSettings,
        prepare: Callable[[], Awaitable[None]],
        events: Events,
        chores: Sequence[Chore],
    ) -> None:
        self.events = events
        self._measures = events.wants_ends  # asked again for each batch, since the level of a logger may change
        self.store = store
        self.namespace = namespace
        self.hub = hub
        self.registry = registry
        self.app_settings = settings
        self.settings = settings.worker
        self.queues = None if queues is None else list(queues)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.id = 0
        self.outage = Outage("database", self.name)
        self.running: dict[int, tuple[Claim, Running, asyncio.Task[None]]] = {}
        self.intake = Intake(self)
        self.heart = Heart(self)
        self.lookout = Lookout(self)
        self.cleaning = Cleaning(self)
        self.chores = Chores(self.name, self.outage, self.cleaning.chore(), self.lookout.chore(), *chores)
        self.flows = Flows(self, lanes)
        self._lanes = lanes
        self._queue_settings = queue_settings
        self._prepare = prepare
        self._settling: Coalescer[Ending, bool] = Coalescer(self._settle, MOST_AT_ONCE, _weight)
        self._writing: list[Ending] = []
        self._unwritten: list[Ending] = []
        """What has ended here and could not be written before a stop had to give up."""
        self._unsettled = 0
        self._failures = RepeatedFailures()
        self._runs_flows = any(one.kind != "task" for one in registry)
        self._needs = NEEDS_OF_FLOWS if self._runs_flows else NEEDS
        self._give_up_at = math.inf
        """When a worker that stops no longer waits for the database, in monotonic seconds."""
        self._in_doubt = False
        """The database may have forgotten claims of ours, or endings."""
        self._strays = False
        """A claim did not come to a good end: the database may count tasks as ours that we do not know of."""
        self.unanswered = UnansweredClaims(self.doubt)
        self._warner = undecodable_input.Warner(log, self.settings.decode_timeout)
        self._threads: Threads | None = None
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._ending: set[str] = set()
        self._draining: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._beginning = asyncio.Lock()
        self.wake = asyncio.Event()

    @property
    def names(self) -> list[str]:
        """The tasks and workflows that this worker can run."""
        return [one.name for one in self.registry]

    @property
    def busy(self) -> list[Running]:
        """What runs here now."""
        return [running for _, running, _ in self.running.values()]

    @property
    def healthy(self) -> bool:
        """Are its loops alive and its lease its own?"""
        alive = bool(self._loops) and all(not loop.done() for loop in self._loops.values())
        return alive and self.chores.alive and self.heart.beating

    @property
    def room(self) -> int:
        """How many more tasks may run now."""
        running, most = len(self.running), self.settings.concurrency
        return min(most - running, BEGUN_MOST * most - running - self._unsettled)

    async def start(self) -> None:
        """Take a lease and begin."""
        async with self._beginning:
            await self._prepare()
            await self.enlist()
            await self.intake.refresh()
            if flows := [one.name for one in self.registry if one.kind != "task"]:
                await retry_unavailable(self.store.run, unpark, flows)
            # Only now, when nothing can fail any more: one that could not start must not go on listening.
            self.hub.on_work.append(self._work_came)
            self.hub.on_due.append(self.heart.due)
            self.hub.on_cancel.append(self.heart.cancel_came)
            self.hub.on_news.append(self.flows.news)
            self.chores.start()
            self._loops = {
                "claim": asyncio.create_task(self._forever("claim", self._claim_once)),
                "heart": asyncio.create_task(self._forever("heart", self.heart.beat, self._soon)),
            }

    async def enlist(self) -> None:
        """A new lease, under a number that was never used before."""
        queues = "all" if self.queues is None else ",".join(self.queues)
        self.id = await retry_unavailable(
            self.store.run, register, random_number(), self.namespace, self.name, queues, micros(self.settings.lease)
        )
        await retry_unavailable(self.lookout.declare)

    @property
    def _soon(self) -> float:
        """The longest pause before a heartbeat is tried again, in seconds."""
        return self.settings.lease.total_seconds() / 12

    async def _forever(self, name: str, once: Callable[[], Awaitable[None]], most: float = 5.0) -> None:
        """A loop of a worker never dies silently: it says what happened and goes on."""
        failures = 0
        while name not in self._ending:
            try:
                await once()
                failures = 0
                self.outage.regained(name)
            except LeaseLost as error:
                self.outage.regained(name)
                log.warning("%s; starting over with a new lease", phrase(error))
                if self.events.observed:
                    self.events.emit(WorkerEvent(type=WorkerEventType.LEASE_LOST, reason=error.message))
                await self._start_over()
            except EngineUnavailable as error:
                failures += 1
                self.outage.lost(name, error)
                await asyncio.sleep(pause(failures, most))
            except Exception as error:
                failures += 1
                self._failures.log(log, name, error, f"{name} loop of {self.name} failed; it goes on")
                await asyncio.sleep(pause(failures, most))

    async def _start_over(self) -> None:
        """Others have our tasks: stop them here and begin with a new lease."""
        for _, running, task in list(self.running.values()):
            running.stopping = True
            task.cancel()
        self.running.clear()
        self.intake.hold_only(())
        self._lanes.forget_all()
        self._queue_settings.doubt()
        await self.enlist()
        self.wake.set()

    def hopeless(self, failures: int) -> bool:
        """Is it time to give up writing? Only a worker that is asked to stop ever does."""
        return self._stopping and (failures > 20 or time.monotonic() > self._give_up_at)

    def _work_came(self, lanes: Iterable[int]) -> None:
        if self.intake.concerns(lanes):
            self.wake.set()

    async def _claim_once(self) -> None:
        """Wait for room and for work, take some, start it."""
        await self._wait_for_room()
        if self._stopping:
            return
        self.wake.clear()
        if not self.store.is_ready(self._needs):
            await self._make_ready()
        if self._strays or self._in_doubt:
            self._in_doubt, in_doubt = False, True
            try:
                await reconcile(self)
                await self._queue_settings.write_again()
                in_doubt = False
            finally:
                self._in_doubt = self._in_doubt or in_doubt
        if self.room <= 0:
            return
        worker, self._strays = self.id, True
        try:
            claims = await self.intake.take(self.room)
        except EngineUnavailable:
            self.unanswered.add(self.intake.unbegun)
            raise
        self.outage.regained("claim")
        if worker != self.id:
            return  # the lease was lost meanwhile: these claims are no longer ours, or not known to be
        if claims and "claim" in self._ending:  # asked to stop while it asked for work
            await retry_unavailable(self.store.run, release, self.id, [claim.fence for claim in claims])
            claims = []
        if any(one.kind == "task" and one.attempt >= one.max_attempts for one in claims):
            # A claim need not wait for the disk: if the server forgets it, the task runs once more. Not so the last.
            await self.store.run(confirm, self.id)
            if worker != self.id:
                return
        self._strays = False
        self.intake.unbegun.clear()
        self._measures = self.events.wants_ends
        for claim in claims:
            self._begin(claim)
        if not self.intake.busy:  # there was no more to take, and new work announces itself
            await self._nap(self.intake.wait)

    async def _make_ready(self) -> None:
        """Nothing is taken before there are the connections to write what comes of it."""
        try:
            await self.store.make_ready(self._needs)
        except EngineUnavailable as error:
            raise EngineUnavailable(f"no work is taken until its results can be written: {error.message}") from error

    async def _wait_for_room(self) -> None:
        """At least one place; when there is much to do, a few milliseconds for more, so that claims are large."""
        while self.room <= 0 and not self._stopping and not self._in_doubt:
            self.wake.clear()
            await self._nap(1.0)
        enough = self.settings.concurrency // 2
        patience = time.monotonic() + GATHER
        while self.intake.busy and self.room < enough and (left := patience - time.monotonic()) > 0:
            self.wake.clear()
            await self._nap(left)

    async def _nap(self, most: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self.wake.wait()

    @property
    def unsettled(self) -> list[int]:
        """The tokens of what has ended here and is not written yet."""
        return [e.claim.token for e in (*self._writing, *self._settling.waiting)]

    def doubt(self, went_back: bool = False) -> None:
        """The database may have forgotten something: compare what is ours before more is taken.

        `went_back`: it is known to be as it was at an earlier time.
        """
        self._in_doubt = True
        self._lanes.forget_all()
        if went_back:
            self._queue_settings.database_went_back()
        else:
            self._queue_settings.doubt()
        self.wake.set()

    def _begin(self, claim: Claim) -> None:
        running = claim.context(self.namespace, self.intake.queue_of(claim.lane), self.heart.note)
        if self.events.observed:
            self.events.claimed(running)
        run = self._run if claim.kind == "task" else self._hold
        task = asyncio.create_task(run(claim, running))
        self.running[claim.token] = (claim, running, task)

    async def _hold(self, claim: Claim, running: Running) -> None:
        """A flow has the place of a task for as long as it does something."""
        try:
            await self.flows.hold(claim, running)
        except EngineError as error:
            known = self.outage.lasts and isinstance(error, EngineUnavailable)
            log.log(logging.DEBUG if known else logging.WARNING, "flow %s is given back: %s", claim.execution, error)
            self._strays = True
        finally:
            if self.running.get(claim.token, (None,))[0] is claim and not running.stopping:
                del self.running[claim.token]
        self.wake.set()
        with contextlib.suppress(EngineUnavailable):
            await self.intake.freed([claim])

    async def _run(self, claim: Claim, running: Running) -> None:
        task = self.registry.task(claim.name)
        began = time.perf_counter() if self._measures else 0.0
        try:
            if running.cancelled:
                ending = Ending(claim, Status.CANCELLED)
            else:
                if self.events.observed:
                    self.events.started(running)
                ran = await run_attempt(task, claim.input, running, self.threads, self.app_settings.max_payload)
                ending = ending_of(claim, ran, time.perf_counter() - began if began else None)
                if ending.undecodable:
                    self._warner.left(claim.name, claim.execution, ending.message)
        except Interrupted:
            return
        finally:
            if self.running.get(claim.token, (None,))[0] is claim and not running.stopping:
                del self.running[claim.token]
        self._unsettled += 1
        self._settling.add(ending).add_done_callback(self._settled)
        if self.intake.busy or self.room == 1:
            self.wake.set()

    def _settled(self, future: asyncio.Future[bool]) -> None:
        self._unsettled -= 1
        if self.intake.busy or self.room == 1:
            self.wake.set()
        if not future.cancelled() and future.exception() is not None:
            log.error("a result could not be written and its task will run again: %s", future.exception())
            self._strays = True  # its claim is given back with those that nobody knows of
            self.wake.set()

    def threads(self) -> Threads:
        if self._threads is None:
            self._threads = Threads(self.settings.concurrency)
        return self._threads

    async def _settle(self, endings: list[Ending]) -> list[bool | BaseException]:
        """Write endings; a database that is away is waited for, since the lease protects the claims."""
        final = [e for e in endings if e.retry_in is None and not e.undecodable]
        again = [e for e in endings if e.retry_in is not None]
        left = [e for e in endings if e.undecodable]
        given_up: list[Ending] = []
        self._writing = endings
        worker = self.id
        refused, waited = set[int](), set[int]()
        failures = 0
        patience = self.settings.decode_timeout
        parts = (settle, final, (waited,)), (put_off, again, ()), (leave, left, (patience, given_up))
        for script, batch, more in parts:
            while batch:
                try:
                    stale = await self.store.run(script, worker, batch, *more)
                    refused |= stale
                    break
                except EngineError as error:
                    failures += 1
                    if worker != self.id or self.hopeless(failures):
                        self._unwritten += endings
                        raise
                    if isinstance(error, EngineUnavailable):
                        self.outage.lost(WRITING_RESULTS, error)
                    else:
                        log.warning("%s: %s", WRITING_RESULTS, error.message)
                    await asyncio.sleep(pause(failures))
        self._writing = []
        if failures:
            self.outage.regained(WRITING_RESULTS)
        report_endings(self, final, again, given_up, refused)
        if refused:
            self.doubt()
        self.hub.done([e.claim.execution for e in endings])
        if waited and self._runs_flows:
            self.hub.work(())  # for the flows that waited
            if parents := {e.claim.parent for e in final if e.claim.parent}:
                self.hub.news(parents)
        for ending in again:
            self.heart.due_in(ending.retry_in or 0.0)
        if left:
            self.heart.due_in(undecodable_input.FIRST)
        with contextlib.suppress(EngineUnavailable):  # the results are in; others look by themselves before long
            await self.intake.freed([e.claim for e in endings])
        return [ending.claim.token not in refused for ending in endings]

    async def stop(self, grace: timedelta | None = None) -> None:
        """Drain: no new work, running tasks may finish, the rest goes back to its lane. Asked again, do not wait."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(self.settings.grace if grace is None else grace))
        else:
            self._hurry.set()
        await asyncio.shield(self._draining)

    async def _drain(self, grace: timedelta) -> None:
        async with self._beginning:  # asked to stop while it starts, it starts first, and stops then
            if not self._loops:
                return
        self._stopping = True
        self._give_up_at = time.monotonic() + grace.total_seconds() + LEAVE
        await self._end_loop("claim")
        await self.chores.close()  # a slot that is decided now would only be in the way of the next ones
        self.unanswered.cancel()
        tasks = [task for _, _, task in self.running.values()]
        if tasks and grace:
            await self._unless_hurried(asyncio.wait(tasks), grace.total_seconds())
        if self._hurry.is_set():
            self._give_up_at = time.monotonic() + LEAVE
        interrupted = list(self.running.values())
        for _, running, task in interrupted:
            running.stopping = True
            task.cancel()
        if interrupted:
            await asyncio.wait([task for _, _, task in interrupted], timeout=1.0)
        # Results that wait for the database have the grace as well.
        await self._unless_hurried(self._settling.drained(), self._give_up_at - time.monotonic() - LEAVE / 2)
        await self._end_loop("heart")
        self.hub.on_work.remove(self._work_came)
        self.hub.on_due.remove(self.heart.due)
        self.hub.on_cancel.remove(self.heart.cancel_came)
        self.hub.on_news.remove(self.flows.news)
        await self._say_goodbye([claim for claim, _, _ in interrupted])
        if self._threads is not None:
            self._threads.close()
        self._loops.clear()

    async def _unless_hurried(self, what: Awaitable[object], seconds: float) -> None:
        """Wait for something, for so long at most, and not if the worker is asked to stop at once."""
        waits = [asyncio.ensure_future(what), asyncio.create_task(self._hurry.wait())]
        await asyncio.wait(waits, timeout=max(0.1, seconds), return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def _say_goodbye(self, interrupted: list[Claim]) -> None:
        """Give back what is still held, if the database answers; if not, it is free when the lease is over.

        What was interrupted was no attempt. What has ended here and could not be written was one.
        """
        unbegun = [claim.fence for claim in interrupted]
        ended = [e.claim.fence for e in (*self._unwritten, *self._writing, *self._settling.waiting)]
        try:
            async with asyncio.timeout(max(1.0, self._give_up_at - time.monotonic())):
                await self.flows.close()
                if unbegun or ended:
                    await retry_unavailable(self.store.run, give_back, self.id, self.name, unbegun, ended)
                lanes = await retry_unavailable(self.store.run, retire, self.id, self.name)
        except (TimeoutError, EngineUnavailable) as error:
            why = "it does not answer" if isinstance(error, TimeoutError) else error
            log.warning(
                "left without a word to the database (%s): what %s held is free after its lease", why, self.name
            )
            self.flows.abandon()
            return
        if lanes:
            self.hub.work(lanes)

    async def _end_loop(self, name: str) -> None:
        """At the end of its round; in the middle of it only if the database keeps it waiting."""
        loop = self._loops.get(name)
        if loop is None:
            return
        self._ending.add(name)
        self.wake.set()
        self.heart.due_in(0)
        _, late = await asyncio.wait([loop], timeout=ROUND)
        if late:
            loop.cancel()
            await asyncio.wait([loop])
        if name == "heart":
            await self.heart.close()


def _weight(ending: Ending) -> int:
    return len(ending.output or b"") + len(ending.error or b"")
