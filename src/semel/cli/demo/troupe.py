"""The processes of the demo. Whatever happens to the demo, none of them stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from types import TracebackType
from typing import IO

LOG = "processes.log"
PATIENCE = 5.0
"""How long a process may take to end when it is asked to."""


class Troupe:
    """Starts processes in a folder, and ends them when the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log: IO[bytes] = (folder / LOG).open("ab")
        self._processes: list[Process] = []

    async def start(self, module: str, *arguments: str, talks: bool = False) -> Process:
        """Run a module of this Python. Its stdin ends with the demo, which ends it too.

        A session of its own: Ctrl-C is for the demo, which then ends the others in order.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, *arguments, cwd=self._folder, stdin=PIPE, stderr=self._log,
            stdout=PIPE if talks else DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._processes.append(process)
        return process

    async def end(self, process: Process) -> int:
        """Ask it to end; make it, if it does not. Its exit code."""
        with contextlib.suppress(ProcessLookupError):  # it ended by itself, a moment ago
            process.terminate()
            try:
                async with asyncio.timeout(PATIENCE):
                    return await process.wait()
            except TimeoutError:
                process.kill()
        return await process.wait()

    async def __aenter__(self) -> Troupe:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.gather(*(self.end(process) for process in self._processes))
        self._log.close()
