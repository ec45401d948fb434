"""The worker: claims, runs, settles. Its heartbeat, recovery and cleaning are in `heart.py`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta

from semel.contract.lifecycle import Status
from semel.contract.times import micros
from semel.define.context import Running
from semel.define.registry import Registry
from semel.engines.journal.attempt import Interrupted, attempt
from semel.engines.journal.claiming import Claim, release, release_strays
from semel.engines.journal.coalesce import Coalescer
from semel.engines.journal.flows import Flows
from semel.engines.journal.heart import Heart
from semel.engines.journal.hub import Hub
from semel.engines.journal.intake import Intake
from semel.engines.journal.lanes import Lanes
from semel.engines.journal.leasing import register, retire
from semel.engines.journal.patience import pause, persistently
from semel.engines.journal.script import Store
from semel.engines.journal.settling import MOST_AT_ONCE, Ending, put_off, settle
from semel.engines.journal.threads import Threads
from semel.engines.journal.turning import unpark
from semel.errors import EngineError, EngineUnavailable, LeaseLost
from semel.settings import Settings

log = logging.getLogger("semel.worker")
UNSETTLED_MOST = 2000
GATHER = 0.003
ROUND = 1.0


class JournalWorker:
    """Runs tasks of one namespace, in this event loop and in threads beside it."""

    def __init__(
        self, store: Store, namespace: str, hub: Hub, registry: Registry, queues: Sequence[str] | None,
        settings: Settings, lanes: Lanes, prepare: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self.store = store
        self.namespace = namespace
        self.hub = hub
        self.registry = registry
        self.app_settings = settings
        self.settings = settings.worker
        self.queues = None if queues is None else list(queues)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.id = 0
        self.running: dict[int, tuple[Claim, Running, asyncio.Task[None]]] = {}
        self.intake = Intake(self)
        self.heart = Heart(self)
        self.flows = Flows(self, lanes)
        self._prepare = prepare
        self._settling: Coalescer[Ending, bool] = Coalescer(self._settle, MOST_AT_ONCE, _weight)
        self._writing: list[Ending] = []
        self._unsettled = 0
        self._runs_flows = any(one.kind != "task" for one in registry)
        self._strays = False
        """A claim did not come to a good end: the database may count tasks as ours that we do not know of."""
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
        return bool(self._loops) and all(not loop.done() for loop in self._loops.values()) and self.heart.beating

    @property
    def room(self) -> int:
        """How many more tasks may run now."""
        if self._unsettled > UNSETTLED_MOST:
            return 0
        return self.settings.concurrency - len(self.running)

    async def start(self) -> None:
        """Take a lease and begin."""
        async with self._beginning:
            await self._prepare()
            await self.enlist()
            await self.intake.refresh()
            self.hub.on_work.append(self._work_came)
            self.hub.on_due.append(self.heart.due)
            self.hub.on_cancel.append(self.heart.cancel_came)
            self.hub.on_news.append(self.flows.news)
            if flows := [one.name for one in self.registry if one.kind != "task"]:
                await persistently(self.store.run, unpark, flows)
            self._loops = {
                "claim": asyncio.create_task(self._forever("claim", self._claim_once)),
                "heart": asyncio.create_task(self._forever("heart", self.heart.beat)),
            }

    async def enlist(self) -> None:
        """A new lease, under a number that was never used before."""
        queues = "all" if self.queues is None else ",".join(self.queues)
        self.id = await persistently(
            self.store.run, register, self.namespace, self.name, queues, micros(self.settings.lease)
        )

    async def _forever(self, name: str, once: Callable[[], Awaitable[None]]) -> None:
        """A loop of a worker never dies silently: it says what happened and goes on."""
        failures = 0
        while name not in self._ending:
            try:
                await once()
                failures = 0
            except LeaseLost as error:
                log.warning("%s; starting over with a new lease", error.message)
                await self._start_over()
            except EngineUnavailable as error:
                failures += 1
                log.warning("%s loop of %s: %s", name, self.name, error)
                await asyncio.sleep(pause(failures))
            except Exception:
                failures += 1
                log.exception("%s loop of %s failed; it goes on", name, self.name)
                await asyncio.sleep(pause(failures))

    async def _start_over(self) -> None:
        """Others have our tasks: stop them here and begin with a new lease."""
        for _, running, task in list(self.running.values()):
            running.stopping = True
            task.cancel()
        self.running.clear()
        self.intake.hold_only(())
        await self.enlist()
        self.wake.set()

    def hopeless(self, failures: int) -> bool:
        """Is it time to give up writing? Only a worker that is asked to stop ever does."""
        return self._stopping and failures > 20

    def _work_came(self, lanes: Iterable[int]) -> None:
        if self.intake.concerns(lanes):
            self.wake.set()

    async def _claim_once(self) -> None:
        """Wait for room and for work, take some, start it."""
        await self._wait_for_room()
        if self._stopping:
            return
        self.wake.clear()
        if self._strays:
            await self._release_strays()
        worker, self._strays = self.id, True
        claims = await self.intake.take(self.room)
        if worker != self.id:
            return  # the lease was lost meanwhile: these claims are no longer ours, or not known to be
        self._strays = False
        for claim in claims:
            self._begin(claim)
        if not self.intake.busy:  # there was no more to take, and new work announces itself
            await self._nap(self.intake.wait)

    async def _wait_for_room(self) -> None:
        """At least one place; when there is much to do, a few milliseconds for more, so that claims are large."""
        while self.room <= 0 and not self._stopping:
            self.wake.clear()
            await self._nap(1.0)
        enough = self.settings.concurrency // 4
        patience = time.monotonic() + GATHER
        while self.intake.busy and self.room < enough and (left := patience - time.monotonic()) > 0:
            self.wake.clear()
            await self._nap(left)

    async def _nap(self, most: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most):
                await self.wake.wait()

    async def _release_strays(self) -> None:
        """The reply to a claim was lost: it took what we do not know of. What waits to be settled, we know."""
        known = [*self.running, *(e.claim.seq for e in (*self._writing, *self._settling.waiting))]
        await persistently(self.store.run, release_strays, self.id, known)
        self.intake.hold_only(known)

    def _begin(self, claim: Claim) -> None:
        running = Running(
            claim.execution, claim.key, claim.name, claim.kind, self.namespace, self.intake.queue_of(claim.lane),
            claim.attempt, claim.max_attempts, claim.generation, claim.seq, bool(claim.cancel),
            parent_workflow_id=claim.parent, _root=claim.root, _note=self.heart.note,
        )  # fmt: skip
        run = self._run if claim.kind == "task" else self._hold
        task = asyncio.create_task(run(claim, running))
        self.running[claim.seq] = (claim, running, task)

    async def _hold(self, claim: Claim, running: Running) -> None:
        """A flow has the place of a task for as long as it does something."""
        try:
            await self.flows.hold(claim, running)
        except EngineError as error:
            log.warning("flow %s is given back: %s", claim.execution, error.message)
            self._strays = True
        finally:
            if self.running.get(claim.seq, (None,))[0] is claim and not running.stopping:
                del self.running[claim.seq]
        self.wake.set()
        with contextlib.suppress(EngineUnavailable):
            await self.intake.freed([claim])

    async def _run(self, claim: Claim, running: Running) -> None:
        task = self.registry.task(claim.name)
        try:
            if running.cancelled:
                ending = Ending(claim, Status.CANCELLED)
            else:
                ending = await attempt(task, claim, running, self.threads, self.app_settings.max_payload)
        except Interrupted:
            return
        finally:
            if self.running.get(claim.seq, (None,))[0] is claim and not running.stopping:
                del self.running[claim.seq]
        self._unsettled += 1
        self._settling.add(ending).add_done_callback(self._settled)
        if self.intake.busy or self.room == 1:
            self.wake.set()

    def _settled(self, future: asyncio.Future[bool]) -> None:
        self._unsettled -= 1
        if self._unsettled == UNSETTLED_MOST:
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
        final = [e for e in endings if e.retry_in is None]
        again = [e for e in endings if e.retry_in is not None]
        self._writing = endings
        worker = self.id
        refused: set[int] = set()
        failures = 0
        for script, batch in ((settle, final), (put_off, again)):
            while batch:
                try:
                    stale = await self.store.run(script, worker, batch)
                    refused |= stale
                    break
                except EngineError as error:
                    failures += 1
                    if worker != self.id or self.hopeless(failures):
                        raise
                    log.warning("cannot write results, trying again: %s", error.message)
                    await asyncio.sleep(pause(failures))
        self._writing = []
        for ending in endings:
            if ending.claim.seq in refused:
                log.warning(
                    "stale completion refused: execution %s (token %s) was taken over by another worker",
                    ending.claim.execution, ending.claim.seq,
                )  # fmt: skip
        self.hub.done([e.claim.execution for e in endings])
        if self._runs_flows and any(e.claim.parent or e.claim.key for e in final):
            self.hub.work(())  # a flow may have waited for one of them
            if parents := {e.claim.parent for e in final if e.claim.parent}:
                self.hub.news(parents)
        for ending in again:
            self.heart.due_in(ending.retry_in or 0.0)
        with contextlib.suppress(EngineUnavailable):  # the results are in; others look by themselves before long
            await self.intake.freed([e.claim for e in endings])
        return [ending.claim.seq not in refused for ending in endings]

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
        await self._end_loop("claim")
        tasks = [task for _, _, task in self.running.values()]
        if tasks and grace:
            waits = [asyncio.create_task(asyncio.wait(tasks)), asyncio.create_task(self._hurry.wait())]
            await asyncio.wait(waits, timeout=grace.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        interrupted = list(self.running.values())
        for _, running, task in interrupted:
            running.stopping = True
            task.cancel()
        if interrupted:
            await asyncio.wait([task for _, _, task in interrupted], timeout=1.0)
        await self._settling.drained()
        await self._end_loop("heart")
        self.hub.on_work.remove(self._work_came)
        self.hub.on_due.remove(self.heart.due)
        self.hub.on_cancel.remove(self.heart.cancel_came)
        self.hub.on_news.remove(self.flows.news)
        await self.flows.close()
        rows = [(claim.lane, claim.seq) for claim, _, _ in interrupted]
        if rows:
            await persistently(self.store.run, release, self.id, rows)
        lanes = await persistently(self.store.run, retire, self.id, self.name)
        if lanes:
            self.hub.work(lanes)
        if self._threads is not None:
            self._threads.close()
        self._loops.clear()

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


def _weight(ending: Ending) -> int:
    return len(ending.output or b"") + len(ending.error or b"")
