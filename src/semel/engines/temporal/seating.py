"""Seats for the tasks of a queue: as many as a worker runs at once, whichever way they come.

A task is polled for; or the cluster hands it to the worker that has just asked for it on behalf of a workflow, which
saves both of them the way through the queue.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import Final

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

SHY: Final = 5.0
"""For so many seconds tasks go through the queue after one was handed over that is not known here: others know it."""


class Seats:
    """The seats of one queue. Temporal takes and gives them back from threads of its own."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._handed = 0
        self._lock = threading.Lock()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._shy_until = 0.0
        self.through_queue = True
        """Nothing is handed over: the queue has a rate limit, which only the way through it keeps."""
        self._given = asyncio.Event()
        self._stopping = self._leaving = False
        self.polled: Final = _Polled(self)
        self.handed: Final = _Handed(self)

    def shy(self) -> None:
        """A task was handed over that is not known here."""
        self._shy_until = time.monotonic() + SHY

    async def stop(self) -> None:
        """Let nothing more be handed over, and wait for what was."""
        with self._lock:
            self._stopping = True
        while self._handed and not self._leaving:
            self._given.clear()
            await self._given.wait()

    def leave(self) -> None:
        """Wait no longer."""
        self._leaving = True
        self._given.set()

    async def take(self) -> None:
        """Wait for a seat."""
        while not self._taken():
            turn = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._call()  # it may have been called just now: then it is another one's turn
                raise

    def take_handed(self) -> bool:
        """A seat for a task that comes without having been polled for; False: it has to go through its queue."""
        if self.through_queue or time.monotonic() < self._shy_until:
            return False
        with self._lock:
            if self._stopping or not self._free:
                return False
            self._free -= 1
            self._handed += 1
            return True

    def give(self, *, handed: bool) -> None:
        """A seat is free again."""
        with self._lock:
            self._free += 1
            self._handed -= handed
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._call)

    def _taken(self) -> bool:
        with self._lock:
            if not self._free:
                return False
            self._free -= 1
            return True

    def _call(self) -> None:
        """Tell those who wait."""
        self._given.set()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Polled(CustomSlotSupplier):
    """For the worker that polls."""

    def __init__(self, seats: Seats) -> None:
        self._seats = seats

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """See CustomSlotSupplier."""
        await self._seats.take()
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """See CustomSlotSupplier."""
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """See CustomSlotSupplier."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """See CustomSlotSupplier."""
        self._seats.give(handed=False)


class _Handed(_Polled):
    """For the worker that has the workflows: it never polls for tasks."""

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """See CustomSlotSupplier."""
        never: asyncio.Future[SlotPermit] = asyncio.get_running_loop().create_future()
        return await never

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """See CustomSlotSupplier."""
        return SlotPermit() if self._seats.take_handed() else None

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """See CustomSlotSupplier."""
        self._seats.give(handed=True)
