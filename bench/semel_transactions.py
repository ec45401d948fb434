"""What a start costs in a transaction of the caller's: on the engine's own database, and by an outbox."""

import asyncio
import statistics
from typing import Any

import asyncpg

from bench.measure import BULK, Arguments, arguments, clock, emit, emit_transactions, until
from bench.semel_setup import Semel, semel
from semel import App, OutboxEvent

SOLD = "create table sold (id bigserial primary key, who integer)"
INSERT = "insert into sold (who) values ($1)"
PAUSE = 0.05
MOST_SAMPLES = 100


async def transactions(args: Arguments) -> None:
    async with semel(args) as it:
        await it.app.enqueue(it.noop, task_id="first")  # connects, migrates, prepares
        connection = await asyncpg.connect(args.url)
        await connection.execute(SOLD)
        few = max(100, args.tasks // 10)
        await on_the_connection(it, it.app, connection, few, "starts, on the connection")
        await connection.close()
        emit("starts, bulk", await it.enqueue_all(it.noop, args.tasks, "bulk-"), "1/s", list=BULK)
        await by_an_outbox(it, args, few)


async def on_the_connection(it: Semel, app: Any, connection: Any, count: int, work: str) -> None:
    async def bare(number: int) -> None:
        async with connection.transaction():
            await connection.execute(INSERT, number)

    async def start(number: int) -> None:
        async with connection.transaction():
            await connection.execute(INSERT, number)
            await app.enqueue(it.noop, task_id=f"{work}-{number}", connection=connection)

    await emit_transactions(work, count, bare, start)


async def by_an_outbox(it: Semel, args: Arguments, count: int) -> None:
    """The rows of the business are in another database of the same server."""
    admin = await asyncpg.connect(args.url)
    name = f"{await admin.fetchval('select current_database()')}_shop"
    await admin.execute(f"create database {name}")
    await admin.close()
    url = f"{args.url.rpartition('/')[0]}/{name}"
    await it.app.outbox.init(url)
    connection = await asyncpg.connect(url)
    await connection.execute(SOLD)
    await on_the_connection(it, it.app, connection, count, "starts, in an outbox")
    for begin in range(0, args.tasks, BULK):
        some = range(begin, min(begin + BULK, args.tasks))
        async with connection.transaction():
            await it.app.enqueue_many([(it.noop.call(), f"row-{i}") for i in some], connection=connection)
    emit("starts, relayed", await relay_all(it.app, url), "rows/s")
    emit("starts, until begun p50", await begin_latency(it.app, connection, url, args.samples), "ms")
    await connection.close()


async def relay_all(app: App, url: str) -> float:
    """Rows per second that one relay moves."""
    rows = (await app.outbox.state(database=url)).pending
    began = clock()
    async with app.relay(url) as (relay,):

        async def over() -> bool:
            return relay.counters.relayed >= rows

        await until(over, 240, every=0.005)
        return rows / (clock() - began)


async def begin_latency(app: App, connection: Any, url: str, samples: int) -> float:
    """Milliseconds from a commit until an idle relay carries it out: the median."""
    begun, spent = asyncio.Event(), []

    @app.outbox_handler("bench.begin")
    async def begin(event: OutboxEvent) -> None:
        begun.set()

    async with app.relay(url) as (relay,):
        await until(lambda: _is_idle(relay), 60)
        for _ in range(min(samples, MOST_SAMPLES)):
            async with connection.transaction():
                await app.outbox.add("bench.begin", connection=connection)
            committed = clock()
            await asyncio.wait_for(begun.wait(), 60)
            spent.append(clock() - committed)
            begun.clear()
            await asyncio.sleep(PAUSE)
            await until(lambda: _is_idle(relay), 60)
    return statistics.median(spent) * 1000


async def _is_idle(relay: Any) -> bool:
    return bool(relay._idle)


if __name__ == "__main__":
    asyncio.run(transactions(arguments()))
