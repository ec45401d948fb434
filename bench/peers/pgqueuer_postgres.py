"""PgQueuer on PostgreSQL: no results, and completions are not fenced."""

import asyncio
import sys
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from bench.measure import (
    BULK,
    Arguments,
    Stopwatch,
    arguments,
    drain_rate_async,
    emit,
    emit_transactions,
    process,
    worker_of,
)

BATCH = 1000  # the best of the settings tried


async def worker(args: Arguments) -> None:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(args.url)))

    @queue.entrypoint("noop")
    async def noop(job: object) -> None:
        return None

    await queue.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


async def throughput(args: Arguments) -> None:
    connection = await asyncpg.connect(args.url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await connection.execute("vacuum analyze")
    with Stopwatch() as watch:
        for start in range(0, args.tasks, BULK):
            keys = [f"bulk-{i}" for i in range(start, min(start + BULK, args.tasks))]
            count = len(keys)
            await queries.enqueue(["noop"] * count, [None] * count, [0] * count, [None] * count, keys)
    emit("W1 bulk", args.tasks / watch.seconds, "1/s", list=BULK)

    async def left() -> int:
        return await connection.fetchval("select count(*) from pgqueuer")

    if await left() != args.tasks:
        raise RuntimeError("PgQueuer did not accept every task")
    with process(worker_of("bench.peers.pgqueuer_postgres", args), args.scratch / "pgqueuer.log"):
        emit("W2", await drain_rate_async(args.tasks, left), "tasks/s", batch=BATCH)
    await connection.close()


async def transactions(args: Arguments) -> None:
    connection = await asyncpg.connect(args.url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await connection.execute("create table sold (id bigserial primary key, who integer)")

    async def bare(number: int) -> None:
        async with connection.transaction():
            await connection.execute("insert into sold (who) values ($1)", number)

    async def start(number: int) -> None:
        async with connection.transaction():
            await connection.execute("insert into sold (who) values ($1)", number)
            await queries.enqueue(["noop"], [None], [0], [None], [f"key-{number}"])

    await emit_transactions("starts, on the connection", max(100, args.tasks // 10), bare, start)
    await connection.close()


def main() -> None:
    args = arguments()
    if args.part == "worker":
        asyncio.run(worker(args))
    elif args.part == "transactions":
        asyncio.run(transactions(args))
    elif args.part == "throughput":
        asyncio.run(throughput(args))
    else:
        sys.exit(f"PgQueuer has no part {args.part!r}")


if __name__ == "__main__":
    main()
