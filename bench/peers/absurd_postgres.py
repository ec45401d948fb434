"""Absurd on PostgreSQL. Its schema comes from the installed `absurdctl`, which carries it."""

import asyncio
import sys
import time
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.measure import (
    LONG,
    STEPS,
    WORKFLOWS,
    Arguments,
    Stopwatch,
    arguments,
    callers,
    drain_rate,
    emit,
    process,
    worker_of,
)

QUEUE = "q"
CONNECTIONS = 10
LOOK_EVERY = 0.02
PATIENCE = 120.0
WORKER = {"concurrency": 20, "batch_size": 100, "poll_interval": 0.01}  # the best of the settings tried


def client(url: str) -> AsyncAbsurd:
    absurd = AsyncAbsurd(url, queue_name=QUEUE)

    @absurd.register_task(name="noop")
    async def noop(params: object, context: object) -> int:
        return 1

    @absurd.register_task(name="steps")
    async def steps(params: dict[str, int], context: Any) -> int:
        async def one() -> int:
            return 1

        for i in range(params["count"]):
            await context.step(f"step-{i}", one)
        return params["count"]

    return absurd


async def worker(args: Arguments) -> None:
    await client(args.url).start_worker(claim_timeout=600, **WORKER)


async def clients(url: str) -> list[AsyncAbsurd]:
    """One client is one connection, so many callers need many clients."""
    made = [client(url) for _ in range(CONNECTIONS)]
    for absurd in made:
        await absurd._ensure_connected()
    return made


async def enqueue(free: list[AsyncAbsurd], tasks: int, prefix: str, name: str = "noop", **params: int) -> float:
    async def call(i: int) -> None:
        absurd = free.pop()
        await absurd.spawn(name, params, idempotency_key=f"{prefix}{i}")
        free.append(absurd)

    return await callers(tasks, len(free), call)


async def set_up(args: Arguments, observer: psycopg.Connection) -> list[AsyncAbsurd]:
    observer.execute(BUNDLED_SCHEMA_SQL)
    absurds = await clients(args.url)
    await absurds[0].create_queue(QUEUE)
    observer.execute("vacuum analyze")
    return absurds


def unfinished(observer: psycopg.Connection) -> int:
    row = observer.execute("select count(*) from absurd.r_q where state not in ('completed', 'failed')")
    return row.fetchone()[0]


async def throughput(args: Arguments, observer: psycopg.Connection) -> None:
    absurds = await set_up(args, observer)
    few = max(1, args.tasks // 4)
    emit("W1 x1", await enqueue(absurds[:1], few, "one-"), "1/s")
    many = args.tasks - few
    emit("W1 many", await enqueue(absurds, many, "many-"), "1/s", callers=CONNECTIONS)

    def left() -> int:
        return unfinished(observer)

    if left() != args.tasks:
        raise RuntimeError("Absurd did not accept every task")
    with process(worker_of("bench.peers.absurd_postgres", args), args.scratch / "absurd.log"):
        emit("W2", drain_rate(args.tasks, left), "tasks/s", **WORKER)


async def steps(args: Arguments, observer: psycopg.Connection) -> None:
    """The worker is up; the clock runs from the first start until the last one has ended."""
    absurds = await set_up(args, observer)

    async def rate(workflows: int, count: int, prefix: str) -> float:
        deadline = time.monotonic() + PATIENCE
        with Stopwatch() as watch:
            await enqueue(absurds, workflows, prefix, "steps", count=count)
            while unfinished(observer):
                if time.monotonic() > deadline:
                    raise TimeoutError("not all workflows have ended")
                await asyncio.sleep(LOOK_EVERY)
        return workflows * count / watch.seconds

    with process(worker_of("bench.peers.absurd_postgres", args), args.scratch / "absurd.log"):
        await rate(1, STEPS, "first-")
        emit("W4 500x10", await rate(WORKFLOWS, STEPS, "many-"), "steps/s", **WORKER)
        emit("W4 1x1000", await rate(1, LONG, "long-"), "steps/s")
    if observer.execute("select count(*) from absurd.r_q where state = 'failed'").fetchone()[0]:
        raise RuntimeError("a workflow did not end well")


def main() -> None:
    args = arguments()
    if args.part == "worker":
        asyncio.run(worker(args))
    elif args.part in ("throughput", "steps"):
        with psycopg.connect(args.url, autocommit=True) as observer:
            asyncio.run((throughput if args.part == "throughput" else steps)(args, observer))
    else:
        sys.exit(f"Absurd has no part {args.part!r}")


if __name__ == "__main__":
    main()
