"""Polls one queue of a cluster for workflows and tasks, with one worker of the SDK."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from temporalio.worker import FixedSizeSlotSupplier, Worker, WorkerTuner

from semel.define.registry import Registry
from semel.define.task import Task
from semel.engine.failure_log import log_failure
from semel.engines.temporal.classes import class_of, unknown_task_class
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.running import Runner
from semel.engines.temporal.sandboxing import runner
from semel.engines.temporal.serving import Service
from semel.engines.temporal.slots import GiveBack, Slots
from semel.engines.temporal.unknown import UnknownRunner, UnknownWork
from semel.engines.temporal.versioning import versioned
from semel.runtime.events import FromThreads
from semel.settings import Settings

log = logging.getLogger("semel.worker")
THROTTLE: Final = timedelta(seconds=1)
STICKY: Final = timedelta(seconds=2)
"""For so long at most a workflow waits for the worker that has it in memory, which may be dead; Temporal waits for ten
seconds. Its tasks wait with it, since the workflow says that they are to be run again."""

PATIENT: Final = timedelta(days=1)
"""The SDK is to interrupt nothing when it stops: who stops it does. Else both do at once, and where warnings are errors
its worker breaks off in the middle and never ends."""

LEAST_CACHED: Final = 2
"""A workflow must stay in memory while one of its steps runs, and one whose step runs takes a place among the workflow
tasks that are under way: there are as many places for all three."""


class Poller:
    """The SDK's worker of one queue, the slots for its tasks, and the asyncio task that it runs in."""

    def __init__(self, worker: Worker, slots: Slots) -> None:
        self.slots = slots
        self._worker = worker
        self._life = asyncio.create_task(self._poll())

    @property
    def lives(self) -> bool:
        """Does it poll?"""
        return not self._life.done()

    async def _poll(self) -> None:
        try:
            await self._worker.run()
        except asyncio.CancelledError:
            raise
        except BaseException:
            log.exception("the worker of queue %r has ended", self._worker.task_queue)

    async def stop(self) -> None:
        """Ask for nothing more, and wait for what runs."""
        asked = asyncio.create_task(self._worker.shutdown())
        log_failure(asked, log, f"the worker of queue {self._worker.task_queue!r} could not be shut down")
        await asyncio.wait([self._life])
        asked.cancel()

    def leave(self) -> None:
        """Wait no longer. What it holds is given to others when the cluster has not heard of it for a while."""
        if self.lives:
            log.warning("the worker of queue %r does not end and is left behind", self._worker.task_queue)
            self._life.cancel()


def poller_factory(
    cluster: Cluster,
    name: str,
    registry: Registry,
    performer: Runner,
    settings: Settings,
    unknown: UnknownWork,
) -> Callable[[str], Poller]:
    """What makes and starts the poller of a queue: all queues share what the app has defined."""
    service = Service(cluster, performer)
    tasks = [one for one in registry if isinstance(one, Task)]
    known = {one.name for one in tasks} | service.errands.keys()
    activities = [performer.activity(one) for one in tasks]
    events = FromThreads(cluster.events)
    classes = [class_of(registry, one, settings, cluster.coverage, events) for one in registry]
    classes.append(unknown_task_class(settings, events))
    sandbox, own, build = runner(registry, cluster.client.data_converter), settings.worker, versioned(settings)
    cached = max(LEAST_CACHED, own.cached_workflows)

    def make(queue: str) -> Poller:
        slots = Slots(own.concurrency, known)
        worker = Worker(
            cluster.client,
            task_queue=queue,
            identity=name,
            workflows=classes,
            activities=[*activities, *service.activities, unknown.activity()],
            interceptors=[GiveBack(slots)],
            workflow_runner=sandbox,
            unsandboxed_workflow_runner=UnknownRunner(unknown),
            max_cached_workflows=cached,
            tuner=_tuner(cached, slots),
            graceful_shutdown_timeout=PATIENT,
            max_heartbeat_throttle_interval=THROTTLE,
            default_heartbeat_throttle_interval=THROTTLE,
            sticky_queue_schedule_to_start_timeout=min(STICKY, own.lease),
            deployment_config=build,
        )
        return Poller(worker, slots)

    return make


def _tuner(cached: int, tasks: Slots) -> WorkerTuner:
    fixed = FixedSizeSlotSupplier(cached)
    return WorkerTuner.create_composite(
        workflow_supplier=fixed, activity_supplier=tasks, local_activity_supplier=fixed, nexus_supplier=fixed
    )
