"""How a process is asked to stop: the first signal drains, the second stops at once, and it always ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("semel.worker")

LAST_RESORT = 5.0
"""Seconds after the second signal, or after everything is done, before the process ends whatever hangs."""


class Stopping:
    """Counts the wishes to stop. Python's own handlers, not the loop's: they work while a task blocks the loop."""

    def __init__(self, on_more: Callable[[int], None] | None = None) -> None:
        self.wishes = 0
        self._more = on_more
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = [asyncio.Event(), asyncio.Event()]

    def listen(self) -> None:
        """From now on SIGTERM and SIGINT are wishes."""
        signal.signal(signal.SIGTERM, self._heard)
        signal.signal(signal.SIGINT, self._heard)

    def end_with(self, stream: int) -> None:
        """When the other end of this pipe is gone, so is the parent: that is a wish too."""
        threading.Thread(target=self._watch, args=(stream,), name="semel-parent", daemon=True).start()

    def _watch(self, stream: int) -> None:
        while os.read(stream, 1024):
            pass
        self._wish()

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._wish()

    def _wish(self) -> None:
        self.wishes += 1
        if self.wishes == 2 and self._more is not None:
            self._more(self.wishes)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        for event in self._asked[: self.wishes]:
            event.set()

    async def asked(self, times: int) -> None:
        """Wait for the first wish, or for the second."""
        self._loop = asyncio.get_running_loop()
        self._tell()
        await self._asked[times - 1].wait()


def end_within(seconds: float, code: int) -> None:
    """End the process by then, even if a thread, an exit handler or the loop hangs."""

    def end() -> None:
        time.sleep(seconds)
        log.warning("something does not end; leaving without it")
        end_now(code)

    threading.Thread(target=end, name="semel-last-resort", daemon=True).start()


def end_now(code: int) -> None:
    """Leave without waiting for anything but what has been written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
