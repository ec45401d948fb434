"""Who asks a cluster for the work of one queue: one worker of the SDK for tasks, one for workflows.

They are two because they stop one after the other: a task that ends while its worker drains is not done before its
workflow has heard of it. The one for workflows runs tasks too, if the cluster hands them over at once: see `seating`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from temporalio.client import Client
from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    Worker,
    WorkerTuner,
)

from semel.define.registry import Registry
from semel.define.task import Task
from semel.engine.failure_log import log_failure
from semel.engines.temporal.classes import class_of, unknown_task_class
from semel.engines.temporal.running import Runner
from semel.engines.temporal.sandboxing import runner
from semel.engines.temporal.seating import Seats
from semel.engines.temporal.serving import Service
from semel.engines.temporal.unknown import UnknownRunner, UnknownWork
from semel.engines.temporal.versioning import versioned
from semel.runtime.events import FromThreads
from semel.settings import Settings

if TYPE_CHECKING:
    from semel.engines.temporal.engine import TemporalEngine

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
    """One worker of the SDK, and the task that it lives in."""

    def __init__(self, worker: Worker) -> None:
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
            log.exception("a worker of queue %r has ended", self._worker.task_queue)

    async def stop(self) -> None:
        """Ask for nothing more, and wait for what runs."""
        asked = asyncio.create_task(self._worker.shutdown())
        log_failure(asked, log, f"a worker of queue {self._worker.task_queue!r} could not be shut down")
        await asyncio.wait([self._life])
        asked.cancel()

    def leave(self) -> None:
        """Wait no longer. What it holds is given to others when the cluster has not heard of it for a while."""
        if self.lives:
            log.warning("a worker of queue %r does not end and is left behind", self._worker.task_queue)
            self._life.cancel()


class Pollers:
    """The two workers of one queue."""

    def __init__(self, tasks: Worker, flows: Worker, seats: Seats) -> None:
        self.tasks = Poller(tasks)
        self.flows = Poller(flows)
        self.seats = seats

    @classmethod
    def factory(
        cls,
        client: Client,
        other: Client,
        name: str,
        engine: TemporalEngine,
        registry: Registry,
        performer: Runner,
        settings: Settings,
        unknown: UnknownWork,
    ) -> Callable[[str], Pollers]:
        """What makes and starts them for a queue: all queues share what the app has defined.

        Two clients, since the SDK does not let two workers run tasks of one queue for the same one.
        """
        service = Service(engine, performer)
        activities: list[Any] = [performer.activity(one) for one in registry if isinstance(one, Task)]
        events = FromThreads(engine.events)
        classes = [class_of(registry, one, settings, engine.coverage, events) for one in registry]
        classes.append(unknown_task_class(settings, events))
        sandbox, own, build = runner(registry, client.data_converter), settings.worker, versioned(settings)
        cached = max(LEAST_CACHED, own.cached_workflows)

        def make(queue: str) -> Pollers:
            seats = Seats(own.concurrency)
            tasks = Worker(
                other, task_queue=queue, identity=name,
                activities=[*activities, *service.activities, unknown.activity()],
                tuner=_tuner(cached, seats.polled), graceful_shutdown_timeout=PATIENT,
                max_heartbeat_throttle_interval=THROTTLE, default_heartbeat_throttle_interval=THROTTLE,
                deployment_config=build,
            )  # fmt: skip
            flows = Worker(
                client, task_queue=queue, workflows=classes,
                activities=[*activities, *service.activities, *service.local, unknown.activity(seats.shy)],
                workflow_runner=sandbox, unsandboxed_workflow_runner=UnknownRunner(unknown), identity=name,
                max_cached_workflows=cached, tuner=_tuner(cached, seats.handed), graceful_shutdown_timeout=PATIENT,
                max_heartbeat_throttle_interval=THROTTLE, default_heartbeat_throttle_interval=THROTTLE,
                sticky_queue_schedule_to_start_timeout=min(STICKY, own.lease), deployment_config=build,
            )  # fmt: skip
            return cls(tasks, flows, seats)

        return make


def _tuner(cached: int, tasks: CustomSlotSupplier) -> WorkerTuner:
    fixed = FixedSizeSlotSupplier(cached)
    return WorkerTuner.create_composite(
        workflow_supplier=fixed, activity_supplier=tasks, local_activity_supplier=fixed, nexus_supplier=fixed
    )
