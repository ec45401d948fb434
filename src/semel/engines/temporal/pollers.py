"""The SDK worker of one queue, its slots, and the deployment it belongs to."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final

import msgspec
from temporalio import activity
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivitySlotInfo,
    CustomSlotSupplier,
    ExecuteActivityInput,
    FixedSizeSlotSupplier,
    Interceptor,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    Worker,
    WorkerDeploymentConfig,
    WorkerTuner,
)

from semel.define.registry import Registry
from semel.define.task import Task
from semel.engine.failure_log import log_failure
from semel.engines.temporal.activities import Runner
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.inside.attempts import Verdict
from semel.engines.temporal.inside.classes import class_of, unknown_task_class
from semel.engines.temporal.sandbox import runner
from semel.engines.temporal.service import Service
from semel.engines.temporal.unknown_functions import UnknownRunner, UnknownWork
from semel.errors import ConfigError
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
        self._life.add_done_callback(self._unregister)

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

    def _unregister(self, life: asyncio.Task[None]) -> None:
        """The SDK forgets a worker that has polled. One that did not come so far would keep the queue from the next."""
        if not self._worker._started:
            self._worker._bridge_worker.initiate_shutdown()

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


PAUSE_EAGER: Final = 5.0
"""Seconds for which tasks go through the queue after one was handed over that is not known here: others know it."""
OFFER_AGAIN: Final = timedelta(milliseconds=100)
"""When the cluster offers a task again that a poll brought to a worker that stops."""


class _Permit(SlotPermit):
    """A slot that was given to the SDK."""

    def __init__(self, *, eager: bool) -> None:
        self.eager = eager
        self.used = False


class Slots(CustomSlotSupplier):
    """The slots of one queue. The SDK takes them and gives them back from threads of its own."""

    def __init__(self, count: int, known: Collection[str]) -> None:
        self._free = count
        self._known = known
        self._used = 0
        self._lock = threading.Lock()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._eager_from = 0.0
        self.through_queue = True
        """Nothing is handed over: the queue has a rate limit, which only the way through it keeps."""
        self._released = asyncio.Event()
        self.closed = False

    async def stop(self) -> None:
        """Take no more tasks, and wait for those that run."""
        with self._lock:
            self.closed = True
        while self._used:
            self._released.clear()
            await self._released.wait()

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """See CustomSlotSupplier. Waits for ever once the slots are closed."""
        while not self._take():
            turn = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._wake()  # it may have been woken just now: then it is another one's turn
                raise
        return _Permit(eager=False)

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """See CustomSlotSupplier. None: a task of a workflow has to go through its queue."""
        if self.through_queue or time.monotonic() < self._eager_from or not self._take():
            return None
        return _Permit(eager=True)

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See CustomSlotSupplier."""
        permit, task = ctx.permit, ctx.slot_info
        assert isinstance(permit, _Permit)
        with self._lock:
            permit.used = True
            self._used += 1
        if permit.eager and isinstance(task, ActivitySlotInfo) and task.activity_type not in self._known:
            self._eager_from = time.monotonic() + PAUSE_EAGER

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """See CustomSlotSupplier."""
        permit = ctx.permit
        assert isinstance(permit, _Permit)
        with self._lock:
            self._free += 1
            self._used -= permit.used
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _take(self) -> bool:
        with self._lock:
            if self.closed or not self._free:
                return False
            self._free -= 1
            return True

    def _wake(self) -> None:
        """Tell one that waits for a slot, and who waits for the tasks that run."""
        self._released.set()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class GiveBack(Interceptor):
    """Gives back the tasks that a poll brings which was under way when the slots were closed."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See Interceptor."""
        return _GiveBack(next, self._slots)


class _GiveBack(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, slots: Slots) -> None:
        super().__init__(next)
        self._slots = slots

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """See ActivityInboundInterceptor. The cluster offers the task again, and no attempt of it counts."""
        if not self._slots.closed or not _may_be_offered_again(activity.info()):
            return await super().execute_activity(input)
        raise ApplicationError(
            "the worker stops",
            msgspec.to_builtins(Verdict(retry_in=0.0, counts=False)),
            type="semel.Interrupted",
            next_retry_delay=OFFER_AGAIN,
            category=ApplicationErrorCategory.BENIGN,
        )


def _may_be_offered_again(info: activity.Info) -> bool:
    """Has it as many tries as it needs? A step belongs to this process, and other people's tasks may have few tries."""
    return not info.is_local and info.retry_policy is not None and not info.retry_policy.maximum_attempts


BEHAVIOURS: Final = {
    "pinned": VersioningBehavior.PINNED,
    "auto_upgrade": VersioningBehavior.AUTO_UPGRADE,
}


def versioned(settings: Settings) -> WorkerDeploymentConfig | None:
    """How a worker is versioned; None: it is not.

    The behaviour stands in the worker's configuration only: on a class it would make workers without a version hang.
    """
    own = settings.temporal
    if own.deployment is None and own.build_id is None:
        return None
    if own.deployment is None or own.build_id is None:
        missing = "deployment" if own.deployment is None else "build_id"
        raise ConfigError(f"a versioned worker needs temporal.deployment and temporal.build_id: {missing} is missing.")
    version = WorkerDeploymentVersion(own.deployment, own.build_id)
    return WorkerDeploymentConfig(
        version, use_worker_versioning=True, default_versioning_behavior=BEHAVIOURS[own.versioning]
    )
