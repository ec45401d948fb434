"""How far a task walks through the source, from `enqueue` to its result: files, and switches between files.

    python -m bench.walk [sqlite|postgres|temporal ...] [--files]

Everything is warm: the same has been done twenty times before. A step is a function of `src/semel` that is called, or a
coroutine or generator that goes on; a switch is a step into another file than the one before, or into another room
(folder). Client, worker and writer thread are one process, and their steps are counted in the order in which they
happen. Of many walks the shortest is shown: the others met a heartbeat or a poll.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import semel
from bench.server import postgres

HOME = str(Path(semel.__file__).parent)
WARM_UP = 20
WALKS = 30


class Walked(NamedTuple):
    """One walk: its files, most used first, and how often it went from one file, or one room, to another."""

    files: list[str]
    switches: int
    room_switches: int


class Walk:
    """What is stepped into while it records."""

    def __init__(self) -> None:
        self.recording = False
        self.steps: list[str] = []

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """For sys.setprofile."""
        if self.recording and event == "call" and frame.f_code.co_filename.startswith(HOME):
            self.steps.append(frame.f_code.co_filename[len(HOME) + 1 :])

    def take(self) -> Walked:
        """What was walked since it was taken last."""
        steps, self.steps = self.steps, []
        files = [name for name, _ in Counter(steps).most_common()]
        rooms = [str(Path(name).parent) for name in steps]
        return Walked(files, _count_switches(steps), _count_switches(rooms))


def _count_switches(steps: list[str]) -> int:
    return sum(one != other for one, other in pairwise(steps))


async def walk(url: str, **options: Any) -> Walked:
    """The shortest walk of a task on this engine."""
    app = semel.App(url, config=None, auto_migrate=True, **options)

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    recorder, walks = Walk(), []
    threading.setprofile(recorder.profile)  # before there is a writer thread
    sys.setprofile(recorder.profile)
    try:
        async with app, app.worker():
            for n in range(WARM_UP + WALKS):
                recorder.recording = n >= WARM_UP
                handle = await app.enqueue(add, n, 1, task_id=f"walk-{n}")
                assert await handle.result(timeout="60s") == n + 1
                recorder.recording = False
                if n >= WARM_UP:
                    walks.append(recorder.take())
                await asyncio.sleep(0.05)  # what follows a result belongs to no walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return min(walks, key=lambda found: found.switches)


def main() -> None:
    """Walk on the engines that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("engines", nargs="*", default=["sqlite", "postgres", "temporal"])
    parser.add_argument("--files", action="store_true", help="list the files")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as servers:
        folder = Path(name)
        folder.chmod(0o755)
        for engine in asked.engines:
            options: dict[str, Any] = {}
            if engine == "sqlite":
                url = f"sqlite:///{folder}/walk.db"
            elif engine == "postgres":
                url = servers.enter_context(postgres(folder, throwaway=True)).fresh_database("walk")
            else:
                from semel.testing.temporal_server import temporal_server

                server = servers.enter_context(temporal_server(folder, namespaces=["walk"]))
                url, options = server.url("walk"), {"namespace": "walk"}
            found = asyncio.run(walk(url, **options))
            walked = f"{len(found.files):>3} files {found.switches:>4} switches {found.room_switches:>4} of rooms"
            print(f"{engine:<9} {walked}")
            if asked.files:
                print("".join(f"    {one}\n" for one in found.files), end="")


if __name__ == "__main__":
    main()
