"""The app under test with its store and its workers, as every part of Semel's measurement sets it up."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from subprocess import Popen
from typing import Any

from bench.measure import BULK, Arguments, Stopwatch, drain_rate_async, process
from bench.semel_app import build
from bench.semel_store import Store, open_store

CONCURRENCY = 200


class Semel:
    """The app under test, its store, and its workers."""

    def __init__(self, args: Arguments, app: Any, store: Store) -> None:
        self.args = args
        self.app = app
        self.noop = app.tasks.get("noop")
        self.noop_sync = app.tasks.get("noop_sync")
        self.steps, self.sleeper, self.waker = map(app.tasks.get, ("steps", "sleeper", "waker"))
        self.store = store

    async def enqueue_all(self, task: Any, count: int, prefix: str) -> float:
        """Enqueue in lists; returns keys per second."""
        with Stopwatch() as watch:
            for start in range(0, count, BULK):
                some = range(start, min(start + BULK, count))
                await self.app.enqueue_many([(task.call(), f"{prefix}{i}") for i in some])
        return count / watch.seconds

    @contextmanager
    def worker(self, log_level: str = "warning") -> Iterator[Popen[bytes]]:
        """A worker process. Only where logs are measured, it logs a line for each task: peers do not either."""
        command = [sys.executable, "-m", "semel", "worker", "bench.semel_app:app"]
        command += ["--concurrency", str(CONCURRENCY), "--log-level", log_level]
        with process(command, self.args.scratch / "semel.log", SEMEL_URL=self.args.url) as child:
            yield child

    async def drain(self, total: int, workers: int = 1, log_level: str = "warning") -> float:
        """Tasks per second from the time at which all workers are up until nothing is left."""
        if await self.store.left() != total:
            raise RuntimeError(f"{await self.store.left()} tasks wait, not {total}")

        async def left() -> int:
            if await self.store.workers() < workers:
                return total
            return await self.store.left()

        with ExitStack() as running:
            for _ in range(workers):
                running.enter_context(self.worker(log_level))
            rate = await drain_rate_async(total, left)
        if await self.store.dead():
            raise RuntimeError("a task did not end well")
        return rate


@asynccontextmanager
async def semel(args: Arguments) -> AsyncIterator[Semel]:
    async with build(args.url) as app:
        store = await open_store(args.url)
        try:
            yield Semel(args, app, store)
        finally:
            await store.close()
