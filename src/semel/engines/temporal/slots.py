"""Slots for the tasks of a queue: as many as a worker runs at once, whether polled for or handed over.

A task is polled for; or the cluster hands it to the worker that has just asked for it on behalf of a workflow (Temporal
calls that eager), which saves the way through the queue. A worker that stops closes its slots: it polls no more, while
its workflows go on and hear how their tasks ended.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Final

import msgspec
from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.worker import (
    ActivityInboundInterceptor,
    ActivitySlotInfo,
    CustomSlotSupplier,
    ExecuteActivityInput,
    Interceptor,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

from semel.engines.temporal.attempts import Verdict

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
