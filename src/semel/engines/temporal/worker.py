"""The worker: polls the queues of a cluster for workflows and for tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

from semel.contract.retention import clean_every
from semel.define.context import Running
from semel.define.registry import Registry
from semel.engine.served_functions import functions_of
from semel.engines.temporal import unserved
from semel.engines.temporal.activities import Runner
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.inside.host import let_go
from semel.engines.temporal.pollers import Poller, poller_factory
from semel.engines.temporal.queues import has_rate_limit
from semel.engines.temporal.sandbox import SDK_LOG, ShortenRepeats
from semel.engines.temporal.unknown_functions import UnknownWork
from semel.engines.temporal.wakeups import Waker
from semel.engines.temporal.workers import BEATS, Presence
from semel.errors import EngineError
from semel.runtime.chores import Chore, Chores, every
from semel.runtime.outage import Outage
from semel.settings import Settings

log = logging.getLogger("semel.worker")
LOOK_EVERY: Final = 1.0
"""Seconds between two looks for queues that nobody has named."""
LIMITS_EVERY: Final = 5.0
"""Seconds between two looks for queues that have a rate limit."""
SETTLE_WITHIN: Final = 5.0
POLLS_END_WITHIN: Final = 0.2
"""Seconds in which the cluster has noticed that a worker polls no more."""
STOP_WITHIN: Final = 10.0
"""Seconds in which the SDK's workers have to end once everything that they run has been interrupted."""
NAMES_AT_ONCE: Final = 100


class TemporalWorker:
    """Runs what the app has defined, wherever work for it waits, or on the queues that are named."""

    def __init__(
        self,
        open: Callable[[], Awaitable[Cluster]],
        runner: Runner,
        registry: Registry,
        queues: Sequence[str] | None,
        settings: Settings,
        make_chores: Callable[[Cluster], Awaitable[Sequence[Chore]]],
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.id = random.getrandbits(32)
        self.queues = None if queues is None else list(queues)
        self._open = open
        self._runner = runner
        self._registry = registry
        self._settings = settings
        self._outage = Outage("cluster", self.name)
        self._shorten_repeats = ShortenRepeats({one.name for one in registry})
        self._polled: dict[str, Poller] = {}
        self.chores = Chores(self.name, self._outage)
        self._beginning = asyncio.Lock()
        self._make_chores = make_chores
        self._draining: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    @property
    def healthy(self) -> bool:
        """Do all of its pollers run?"""
        return self.chores.alive and all(poller.lives for poller in self._polled.values())

    @property
    def busy(self) -> Sequence[Running]:
        """What runs here now."""
        return list(self._runner.busy.values())

    async def start(self) -> None:
        """Connect, and begin to poll."""
        async with self._beginning:
            cluster = self._cluster = await self._open()
            cluster.check()
            self.lookout = unserved.Lookout(cluster, self._registry)
            self._unknown = UnknownWork(cluster.client, self.name)
            self._waker = Waker(cluster.client)
            SDK_LOG.addFilter(self._shorten_repeats)
            try:
                await self._begin(cluster)
            except BaseException:  # the SDK refuses a second worker of a queue: the next try would fail for that
                await self._stop_polling(list(self._polled.values()), time.monotonic())
                await self._let_go()
                raise

    async def _begin(self, cluster: Cluster) -> None:
        own = self._settings.worker
        self._make_poller = poller_factory(
            cluster, self.name, self._registry, self._runner, self._settings, self._unknown
        )
        for queue in _known_queues(self._registry, self._settings) if self.queues is None else self.queues:
            self._serve(queue)
        told = "all" if self.queues is None else ",".join(self.queues)
        self._presence = Presence(cluster.client, self.id, self.name, told, own.lease, functions_of(self._registry))
        await self._presence.tell()
        beat, clean = own.lease.total_seconds() / BEATS, self._clean_every()
        chores = Chores(
            self.name,
            self._outage,
            every(beat, "heart", self._presence.tell, speaks_for_all=True),
            every(clean, "retention", self._clean, first=random.uniform(0, min(60.0, clean))),
            every(LIMITS_EVERY, "limits", self._see_limits, first=0.0),
            every(unserved.EVERY, "functions", self.lookout.look, first=unserved.FIRST),
        )
        if self.queues is None:
            chores.add(every(LOOK_EVERY, "queues", self._look))
        for chore in await self._make_chores(cluster):
            chores.add(chore)
        self.chores = chores
        self.chores.start()

    def _serve(self, queue: str) -> None:
        self._polled[queue] = self._make_poller(queue)

    async def _look(self) -> None:
        """Find queues that work was sent to without anybody having named them here."""
        names = sorted({one.name for one in self._registry})
        for at in range(0, len(names), NAMES_AT_ONCE):
            for queue in await self._cluster.queues_of(names[at : at + NAMES_AT_ONCE], self._polled.keys()):
                self._serve(queue)

    async def _see_limits(self) -> None:
        """Tasks are handed over past the queue, and so past its rate limit: not where there is one."""
        for queue, poller in list(self._polled.items()):
            poller.slots.through_queue = await has_rate_limit(self._cluster.client, queue)

    async def _clean(self) -> None:
        looked = await self._cluster.clean()
        if looked:
            log.info("retention: looked at %d finished executions", looked)

    def _clean_every(self) -> float:
        """Seconds: as the settings say, unless something that this worker runs is kept for less than that."""
        kept = [*(one.retention for one in self._registry), *(one.retention for one in self._settings.queues.values())]
        return clean_every(self._settings.worker.clean_every, kept).total_seconds()

    async def stop(self, grace: timedelta | None = None) -> None:
        """See Worker. Asked again, it waits no longer."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(grace))
        else:
            self._hurry.set()
        await asyncio.shield(self._draining)

    async def _drain(self, grace: timedelta | None) -> None:
        async with self._beginning:
            if not self.chores.started:
                return
        await self.chores.close()
        pollers = list(self._polled.values())
        end = time.monotonic() + (self._settings.worker.grace if grace is None else grace).total_seconds()
        (await self._wait((one.slots.stop() for one in pollers), end)).cancel()
        await self._settle()
        await self._stop_polling(pollers, end)
        await self._let_go()
        try:
            await self._presence.tell(ends=True)
        except EngineError as error:
            log.warning("%s stops, and the cluster does not hear of it: %s", self.name, error)

    async def _let_go(self) -> None:
        """Of everything that a start has made, once nothing polls any more."""
        SDK_LOG.removeFilter(self._shorten_repeats)
        await self._waker.close()
        await self._unknown.close()
        self._runner.close()
        let_go(self._settings)
        self._polled = {}

    async def _wait(self, parts: Iterable[Awaitable[Any]], until: float) -> asyncio.Future[Any]:
        """Wait for all of these until a time, or until asked to hurry."""
        all_of_them: asyncio.Future[Any] = asyncio.gather(*parts, return_exceptions=True)
        hurry: asyncio.Future[Any] = asyncio.create_task(self._hurry.wait())
        timeout = max(0.0, until - time.monotonic())
        await asyncio.wait([all_of_them, hurry], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        return all_of_them

    async def _stop_polling(self, pollers: Sequence[Poller], until: float) -> None:
        """Stop the SDK's workers; what still runs at a time, or when asked to hurry, is interrupted.

        Only then: what is given back while this worker polls would come back to it, and be lost with its last polls.
        """
        stopping = await self._wait((one.stop() for one in pollers), until)
        if not stopping.done():
            await asyncio.wait([stopping], timeout=POLLS_END_WITHIN)
            self._runner.interrupt_tasks()
            self._runner.steps.interrupt()
            await asyncio.wait([stopping], timeout=STOP_WITHIN)
        for one in pollers:
            one.leave()
        await stopping

    async def _settle(self) -> None:
        """The end of a task is the end of its workflow's last turn too: let those that wait for theirs take it here."""
        end = time.monotonic() + SETTLE_WITHIN
        for id_, run in self._runner.lately():
            while time.monotonic() < end:
                try:
                    if await self._cluster.is_settled(id_, run):
                        break
                except EngineError:
                    return  # the cluster is away: another worker will see to it
                await asyncio.sleep(0.01)


def _known_queues(registry: Registry, settings: Settings) -> list[str]:
    return sorted({one.queue for one in registry} | settings.queues.keys() | {"default"})
