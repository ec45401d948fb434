"""Absurd on PostgreSQL. Its schema comes from the installed `absurdctl`, which carries it."""

import asyncio
import sys

import psycopg
from absurd_sdk import AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.measure import Arguments, arguments, callers, drain_rate, emit, process, worker_of

QUEUE = "q"
CONNECTIONS = 10
WORKER = {"concurrency": 20, "batch_size": 100, "poll_interval": 0.01}  # the best of the settings tried


def client(url: str) -> AsyncAbsurd:
    absurd = AsyncAbsurd(url, queue_name=QUEUE)

    @absurd.register_task(name="noop")
    async def noop(params: object, context: object) -> int:
        return 1

    return absurd


async def worker(args: Arguments) -> None:
    await client(args.url).start_worker(claim_timeout=600, **WORKER)


async def clients(url: str) -> list[AsyncAbsurd]:
    """One client is one connection, so many callers need many clients."""
    made = [client(url) for _ in range(CONNECTIONS)]
    for absurd in made:
        await absurd._ensure_connected()
    return made


async def enqueue(free: list[AsyncAbsurd], tasks: int, prefix: str) -> float:
    async def call(i: int) -> None:
        absurd = free.pop()
        await absurd.spawn("noop", {}, idempotency_key=f"{prefix}{i}")
        free.append(absurd)

    return await callers(tasks, len(free), call)


async def throughput(args: Arguments, observer: psycopg.Connection) -> None:
    observer.execute(BUNDLED_SCHEMA_SQL)
    absurds = await clients(args.url)
    await absurds[0].create_queue(QUEUE)
    observer.execute("vacuum analyze")
    few = max(1, args.tasks // 4)
    emit("W1 x1", await enqueue(absurds[:1], few, "one-"), "1/s")
    many = args.tasks - few
    emit("W1 many", await enqueue(absurds, many, "many-"), "1/s", callers=CONNECTIONS)

    def left() -> int:
        row = observer.execute("select count(*) from absurd.r_q where state not in ('completed', 'failed')")
        return row.fetchone()[0]

    if left() != args.tasks:
        raise RuntimeError("Absurd did not accept every task")
    with process(worker_of("bench.peers.absurd_postgres", args), args.scratch / "absurd.log"):
        emit("W2", drain_rate(args.tasks, left), "tasks/s", **WORKER)


def main() -> None:
    args = arguments()
    if args.part == "worker":
        asyncio.run(worker(args))
    elif args.part == "throughput":
        with psycopg.connect(args.url, autocommit=True) as observer:
            asyncio.run(throughput(args, observer))
    else:
        sys.exit(f"Absurd has no part {args.part!r}")


if __name__ == "__main__":
    main()
