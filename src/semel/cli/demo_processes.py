"""The processes of a demo: each runs in the demo's folder, talks by lines of JSON, and ends with the demo."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

LOG: Final = "processes.log"
POLL_EVERY: Final = 0.05
STOP_WITHIN: Final = 5.0
"""Seconds that a process may take to end when it is asked to."""


class DemoFailed(Exception):
    """The demo cannot continue; the message says where to look."""


class DemoProcesses:
    """Starts processes in the demo's folder, and ends all of them when the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log: IO[bytes] = (folder / LOG).open("ab")
        self._processes: list[Process] = []

    async def start_function(self, module: str, name: str, argument: object, *, talks: bool = False) -> Process:
        """Run a function of a module of `semel.cli` in a process of its own."""
        return await self.start("-c", f"from semel.cli.{module} import {name}; {name}({argument!r})", talks=talks)

    async def start(self, *arguments: str, talks: bool = False) -> Process:
        """Start this Python. Its stdin ends with the demo, which ends the process too.

        It has a session of its own: Ctrl-C reaches only the demo, which then ends the others in order.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=self._folder,
            stdin=PIPE,
            stderr=self._log,
            stdout=PIPE if talks else DEVNULL,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    async def read(self, process: Process) -> dict[str, Any]:
        """Wait for the next line of JSON that a process that talks writes. DemoFailed if it ends instead."""
        line = b"" if process.stdout is None else await process.stdout.readline()
        if not line:
            raise self.ended_early(process)
        found: dict[str, Any] = json.loads(line)
        return found

    async def until(self, condition: Callable[[], Awaitable[bool]], needed: Process) -> None:
        """Wait for a condition. DemoFailed if the process that is needed for it ends."""
        while not await condition():
            if needed.returncode is not None:
                raise self.ended_early(needed)
            await asyncio.sleep(POLL_EVERY)

    def ended_early(self, process: Process) -> DemoFailed:
        """The error that says what a process wrote before it ended."""
        log = self._folder / LOG
        last = (log.read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
        return DemoFailed(f"process {process.pid} ended early ({last}); see {log}")

    async def stop(self, process: Process) -> int:
        """Ask a process to end, kill it if it does not, and return its exit code."""
        with contextlib.suppress(ProcessLookupError):  # it ended by itself, a moment ago
            process.terminate()
            try:
                async with asyncio.timeout(STOP_WITHIN):
                    return await process.wait()
            except TimeoutError:
                process.kill()
        return await process.wait()

    async def __aenter__(self) -> DemoProcesses:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(self.stop(process) for process in self._processes))
        self._log.close()
