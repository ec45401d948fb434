"""Where a kitchen is: its server, its records, its ledger; and the processes that work in it."""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import semel
from tests.faults.ledger import Ledger

T = TypeVar("T")
KITCHEN = "tests.faults.temporal.kitchen"
ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Place:
    """Plain data, so that it can be sent to another process."""

    url: str
    records: str
    folder: str

    @property
    def ledger(self) -> Ledger:
        """The effects that happened here."""
        return Ledger(f"{self.folder}/ledger")

    @property
    def environment(self) -> dict[str, str]:
        """What tells the code where it is."""
        return {"SEMEL_URL": self.url, "SEMEL_RECORDS": self.records, "KITCHEN_LEDGER": f"{self.folder}/ledger"}

    def plain(self) -> dict[str, str]:
        """For the journey to another process."""
        return asdict(self)

    def kitchen(self) -> Any:
        """The module, loaded afresh for this place: the environment is to say where that is."""
        sys.modules.pop(KITCHEN, None)
        return importlib.import_module(KITCHEN)


async def prepare(place: Place) -> None:
    """Once: what Semel needs of the namespace, and the tables of the records."""
    async with semel.App(place.url, config=None, records=place.records, auto_migrate=True) as app:
        await app.migrate()


async def retry_unavailable(ask: Callable[[], Awaitable[T]], within: float = 60.0) -> T:
    """What people do whose server is away: ask again. Any other error is a wrong answer."""
    async with asyncio.timeout(within):
        while True:
            try:
                return await ask()
            except semel.EngineUnavailable:
                await asyncio.sleep(0.1)


class WorkerProcess:
    """A real `semel worker`."""

    def __init__(self, place: Place, *options: str) -> None:
        self._log = Path(place.folder) / f"worker-{os.urandom(4).hex()}.log"
        with self._log.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "semel", "worker", f"{KITCHEN}:app", *options], cwd=ROOT, stderr=log,
                env=os.environ | place.environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    def said(self) -> str:
        """Its log."""
        return self._log.read_text()

    async def ready(self) -> None:
        """Wait until it serves."""
        for _ in range(3000):
            if "ready:" in self.said():
                return
            assert self.child.poll() is None, self.said()
            await asyncio.sleep(0.02)
        raise AssertionError(f"a worker does not begin: {self.said()}")

    async def ended(self, within: float = 100.0) -> int:
        """Its exit code."""
        return await asyncio.to_thread(self.child.wait, within)

    def kill(self) -> None:
        """SIGKILL, whatever it does."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait(60)


@contextmanager
def worker(place: Place, *options: str) -> Iterator[WorkerProcess]:
    """One that is surely gone at the end of the block."""
    process = WorkerProcess(place, *options)
    try:
        yield process
    finally:
        process.kill()
