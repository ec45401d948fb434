"""The worker: polls the queues of a cluster for workflows and for tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from semel.define.context import Running
from semel.define.registry import Registry
from semel.define.task import Task
from semel.engines.temporal.classes import class_of, runner
from semel.engines.temporal.running import Runner
from semel.engines.temporal.serving import Service
from semel.engines.temporal.waking import Waker
from semel.settings import Settings

if TYPE_CHECKING:
    from semel.engines.temporal.engine import TemporalEngine

log = logging.getLogger("semel.worker")
THROTTLE = timedelta(seconds=1)
STICKY = timedelta(seconds=2)
"""For so long at most a workflow waits for the worker that has it in memory, which may be dead; Temporal waits for ten
seconds. Its tasks wait with it, since the workflow says that they are to be run again."""


class TemporalWorker:
    """Runs what the app has defined, from the queues it is defined for, or from those that are named."""

    def __init__(
        self, engine: TemporalEngine, registry: Registry, queues: Sequence[str] | None, settings: Settings
    ) -> None:
        self.queues = list(queues) if queues is not None else _queues(registry, settings)
        self._engine = engine
        self._registry = registry
        self._settings = settings
        self._runner = Runner(engine.namespace, settings)
        self._loops: list[asyncio.Task[None]] = []
        self._workers: list[Worker] = []
        self._beginning = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None

    @property
    def healthy(self) -> bool:
        """Do all of its pollers run?"""
        return bool(self._loops) and all(not loop.done() for loop in self._loops)

    @property
    def busy(self) -> Sequence[Running]:
        """What runs here now."""
        return list(self._runner.busy.values())

    async def start(self) -> None:
        """Connect, and begin to poll."""
        async with self._beginning:
            client = await self._engine.open()
            service = Service(self._engine, self._runner)
            activities: list[Any] = [self._runner.activity(one) for one in self._registry if isinstance(one, Task)]
            activities += service.activities
            classes = [class_of(self._registry, one, self._settings) for one in self._registry]
            sandbox = runner(self._registry)
            own = self._settings.worker
            for queue in self.queues:
                self._workers.append(
                    Worker(
                        client, task_queue=queue, activities=activities, workflows=classes, workflow_runner=sandbox,
                        unsandboxed_workflow_runner=UnsandboxedWorkflowRunner(),
                        max_concurrent_activities=own.concurrency, max_cached_workflows=own.cached_workflows,
                        graceful_shutdown_timeout=own.grace, max_heartbeat_throttle_interval=THROTTLE,
                        default_heartbeat_throttle_interval=THROTTLE,
                        sticky_queue_schedule_to_start_timeout=min(STICKY, own.lease),
                    )
                )  # fmt: skip
            self._waker = Waker(client)
            self._loops = [asyncio.create_task(self._poll(one)) for one in self._workers]

    async def _poll(self, worker: Worker) -> None:
        try:
            await worker.run()
        except asyncio.CancelledError:
            raise
        except BaseException:
            log.exception("the worker of queue %r has ended", worker.task_queue)
            raise

    async def stop(self, grace: timedelta | None = None) -> None:
        """See Worker. Asked again, it waits no longer."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain(grace))
        else:
            self._runner.interrupt()
        await asyncio.shield(self._draining)

    async def _drain(self, grace: timedelta | None) -> None:
        async with self._beginning:
            if not self._loops:
                return
        stopping = [asyncio.create_task(one.shutdown()) for one in self._workers]
        within = self._settings.worker.grace if grace is None else grace
        _, late = await asyncio.wait(stopping, timeout=within.total_seconds())
        if late:
            self._runner.interrupt()
        await asyncio.gather(*stopping, return_exceptions=True)
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._waker.close()
        self._runner.close()
        self._loops = []


def _queues(registry: Registry, settings: Settings) -> list[str]:
    """Those that are known: Temporal has no list of queues to look for others in."""
    return sorted({one.queue for one in registry} | settings.queues.keys() | {"default"})
