"""Semel on Temporal beside the bare SDK: the same server, the same work, by turns in one process.

By turns, because a development server slows down as its database grows: each figure of one is taken beside one of
the other, and neither is always first.
"""

import asyncio
import functools
import importlib
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import aiosqlite
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.worker import Worker

import semel
from bench import temporal_sdk as sdk
from bench.measure import Arguments, Stopwatch, arguments, callers, clock, emit_median
from bench.semel_transactions import relay_all
from semel.engines.temporal.connect import connect, parse

ARGS = arguments()
os.environ["SEMEL_URL"] = ARGS.url  # the sandbox imports the flows, and their app, again and again
flows: Any = importlib.import_module("bench.temporal_flows")

QUEUE, NOBODYS = "sdk", "nobody"
CALLERS = 20
WORKFLOWS, STEPS = 20, 10
REPEATS = 5
PATIENCE = timedelta(seconds=60)
NAMES = ("Semel", "SDK")
Measure = Callable[[str, str], Awaitable[float]]


class Pair:
    """Both, on one server."""

    def __init__(self, app: semel.App, client: Client) -> None:
        self.app = app
        self.client = client

    async def start(self, who: str, key: str, ours: Any, theirs: Any, *args: Any, queue: str | None = None) -> Any:
        """One start; a handle that has `result()`."""
        if who == "Semel":
            return await self.app.start_workflow(ours, *args, workflow_id=key, queue=queue)
        return await self.client.start_workflow(
            theirs, args=list(args), id=key, task_queue=queue or QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        )  # fmt: skip

    async def starts(self, who: str, prefix: str, count: int) -> float:
        """Starts per second, nobody there to run them."""

        async def start(i: int) -> None:
            await self.start(who, f"{prefix}-{i}", flows.nothing, sdk.Nothing.run, queue=NOBODYS)

        return await callers(count, CALLERS, start)

    async def steps(self, ours: Any, theirs: Any, who: str, prefix: str) -> float:
        """Steps per second of some workflows that are started at once."""

        async def run(i: int) -> None:
            handle = await self.start(who, f"{prefix}-{i}", ours, theirs, STEPS)
            if await handle.result() != STEPS:
                raise RuntimeError("the result is wrong")

        with Stopwatch() as watch:
            await asyncio.gather(*(run(i) for i in range(WORKFLOWS)))
        return WORKFLOWS * STEPS / watch.seconds

    async def latency(self, who: str, prefix: str, count: int) -> float:
        """Milliseconds from start to result of a task, one after the other: the median."""
        spent = []
        for i in range(count):
            began = clock()
            if who == "Semel":
                await (await self.app.enqueue(flows.noop, task_id=f"{prefix}-{i}")).result()
            else:
                await self.client.execute_workflow(sdk.Task.run, id=f"{prefix}-{i}", task_queue=QUEUE)
            spent.append(clock() - began)
        return sorted(spent)[len(spent) // 2] * 1000


@asynccontextmanager
async def workers(it: Pair) -> AsyncIterator[None]:
    bare = Worker(
        it.client, task_queue=QUEUE, workflows=[sdk.Task, sdk.Activities, sdk.Local],
        activities=[sdk.add],
    )  # fmt: skip
    async with bare, it.app.worker():
        yield


async def by_turns(work: str, unit: str, measure: Measure) -> None:
    """Measure each a few times, the other one first every other time."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for turn in range(REPEATS):
        for who in NAMES if turn % 2 else reversed(NAMES):
            found[who].append(await measure(who, uuid.uuid4().hex[:12]))
    for who in NAMES:
        emit_median(f"{work}, {who}", found[who], unit)


async def cluster(args: Arguments) -> None:
    async with flows.app as app:
        await app.migrate()
        it = Pair(app, await connect(parse(args.url, app.settings.temporal)))
        async with workers(it):
            for work, ours, theirs in (
                ("T tasks", flows.by_tasks, sdk.Activities.run),
                ("T steps", flows.by_steps, sdk.Local.run),
            ):
                await by_turns(work, "steps/s", functools.partial(it.steps, ours, theirs))
            await by_turns("T latency", "ms", lambda who, key: it.latency(who, key, args.samples))
        # Last, since a worker of Semel finds queues by itself, and these are for nobody.
        await by_turns("T starts", "1/s", lambda who, key: it.starts(who, key, args.tasks))


async def transactions(args: Arguments) -> None:
    """Rows of an outbox that a relay starts on the cluster, beside starts by the bare SDK."""
    database = args.scratch / "shop.db"
    database.unlink(missing_ok=True)
    url = f"sqlite:///{database}"
    async with flows.app as app, aiosqlite.connect(database) as connection:
        await app.migrate()
        await app.outbox.init(url)
        it = Pair(app, await connect(parse(args.url, app.settings.temporal)))
        found: dict[str, list[float]] = {name: [] for name in NAMES}
        for turn in range(REPEATS):
            for who in NAMES if turn % 2 else reversed(NAMES):
                key = uuid.uuid4().hex[:12]
                if who == "SDK":
                    found[who].append(await it.starts(who, key, args.tasks))
                    continue
                for number in range(args.tasks):
                    if not connection.in_transaction:
                        await connection.execute("begin")
                    await app.start_workflow(
                        flows.nothing, workflow_id=f"{key}-{number}", queue=NOBODYS, connection=connection
                    )
                await connection.commit()
                found[who].append(await relay_all(app, url))
        emit_median("starts, relayed, Semel", found["Semel"], "rows/s")
        emit_median("starts, SDK", found["SDK"], "1/s")


if __name__ == "__main__":
    asyncio.run((transactions if ARGS.part == "transactions" else cluster)(ARGS))
