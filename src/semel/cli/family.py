"""`semel worker --processes N`: a parent that keeps N workers alive and passes signals on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Sequence

from semel.cli.exits import Exit
from semel.cli.stopping import Stopping

log = logging.getLogger("semel.worker")

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""A child that lived this long and then dies begins again with the first pause."""


class Family:
    """A child is a `semel worker` with these arguments.

    It has a session of its own, so that Ctrl-C reaches only the parent, and is tied to the parent by its stdin:
    if the parent dies, even by SIGKILL, the child drains.
    """

    def __init__(self, size: int, arguments: Sequence[str]) -> None:
        self._size = size
        self._command = [sys.executable, "-m", "semel", "worker", *arguments, "--tied"]
        self._children: set[asyncio.subprocess.Process] = set()
        self._asked = asyncio.Event()

    def run(self) -> Exit:
        """Until all children have ended. OK if each ended cleanly."""
        stopping = Stopping()
        stopping.listen()
        return asyncio.run(self._run(stopping))

    async def _run(self, stopping: Stopping) -> Exit:
        log.info("starting %s worker processes", self._size)
        relay = asyncio.create_task(self._relay(stopping))
        codes = await asyncio.gather(*(self._keep() for _ in range(self._size)))
        relay.cancel()
        worst = max(codes)
        log.info("all worker processes have ended")
        return Exit(worst) if worst in set(Exit) else Exit.FAILED

    async def _relay(self, stopping: Stopping) -> None:
        for times in (1, 2):
            await stopping.asked(times)
            self._stop()

    def _stop(self) -> None:
        self._asked.set()
        for child in self._children:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)

    async def _keep(self) -> int:
        """Start a child again whenever it dies unexpectedly. The code of its last life."""
        deaths = 0
        while not self._asked.is_set():
            began = time.monotonic()
            code = await self._live()
            if self._asked.is_set():
                return Exit.OK if code == -signal.SIGTERM else abs(code)
            if code == Exit.OK:
                return Exit.OK  # someone stopped it by itself
            if code == Exit.USAGE:
                self._stop()  # it will not be better the next time
                return Exit.USAGE
            deaths = 0 if time.monotonic() - began > STEADY else deaths + 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** max(0, deaths - 1))
            log.warning("a worker process died (%s); another starts in %.1f s", _cause(code), pause)
            await self._pause(pause)
        return Exit.OK

    async def _live(self) -> int:
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        self._children.add(child)
        if self._asked.is_set():
            child.send_signal(signal.SIGTERM)
        try:
            return await child.wait()
        finally:
            self._children.discard(child)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()


def _cause(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
