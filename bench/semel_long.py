"""The measures of Semel that need time or many rows: history, memory, idleness, a held transaction."""

import asyncio
import os
from contextlib import AsyncExitStack

from bench.measure import Arguments, clock, emit, resident_mb
from bench.semel_setup import CONCURRENCY, Semel, semel
from bench.semel_store import neighbour, transactions, until_done

IDLE_WORKERS = 100
SETTLED = 12.0  # PostgreSQL adds up what a connection did up to 10 s later: let the start-up be counted first
BACKLOG = 20_000  # tasks that wait at most while memory is watched
OFFER_EVERY = 0.1
TURNS = 4  # drains with a history and without, in each round


async def history(args: Arguments) -> None:
    """W6 in turns with the same drain on a database without a history: one drain swings by more than what is sought."""
    beside = Arguments(**{**vars(args), "url": await neighbour(args.url)})
    async with semel(args) as young, semel(beside) as old:
        for it in (young, old):
            await it.enqueue_all(it.noop, args.tasks, "first-")
            await it.drain(args.tasks)
        await old.store.add_history(args.rows)
        for turn in range(TURNS):
            for it in (young, old) if turn % 2 else (old, young):
                await it.enqueue_all(it.noop, args.tasks, f"{turn}-")
                rate = await it.drain(args.tasks)
                if it is old:
                    emit("W6", rate, "tasks/s", concurrency=CONCURRENCY, finished_rows=args.rows)
                else:
                    emit("W6 without history", rate, "tasks/s", concurrency=CONCURRENCY)


async def memory(args: Arguments) -> None:
    async with semel(args) as it:
        with it.worker() as worker:
            await feed(it, args.tasks, "first-")
            emit("memory", resident_mb(worker.pid), "MB", tasks=args.tasks)
            await feed(it, args.tasks, "second-")
            emit("memory, twice the tasks", resident_mb(worker.pid), "MB", tasks=2 * args.tasks)


async def feed(it: Semel, tasks: int, prefix: str) -> None:
    for number, start in enumerate(range(0, tasks, BACKLOG)):
        await it.enqueue_all(it.noop, min(BACKLOG, tasks - start), f"{prefix}{number}-")
        await until_done(it.store, timeout=120)


async def idle(args: Arguments) -> None:
    """100 workers of 100 apps in one process: what each asks the database does not depend on the process."""
    import semel as package  # the name is taken

    async with AsyncExitStack() as running:
        for _ in range(IDLE_WORKERS):
            app = await running.enter_async_context(package.App(args.url, auto_migrate=True))
            await running.enter_async_context(app.worker(concurrency=1))
        await asyncio.sleep(SETTLED)
        before, began = await transactions(args.url), clock()
        await asyncio.sleep(args.seconds)
        rate = (await transactions(args.url) - before) / (clock() - began)
        emit("idle", rate, "queries/s", workers=IDLE_WORKERS, counted="transactions")
        os._exit(0)  # the answer is out: 100 goodbyes need not be awaited


async def held(args: Arguments) -> None:
    """Offer half of the peak while a transaction is held; how much of the offer is finished in time?"""
    async with semel(args) as it:
        await it.enqueue_all(it.noop, args.tasks, "peak-")
        peak = await it.drain(args.tasks)
        rate = peak / 2
        with it.worker():
            await (await it.app.enqueue(it.noop, task_id="up")).result(timeout=30)
            async with it.store.hold():
                began, sent = clock(), 0
                while (elapsed := clock() - began) < args.seconds:
                    due = int(rate * elapsed) - sent
                    if due > 0:
                        await it.enqueue_all(it.noop, due, f"held-{sent}-")
                        sent += due
                    await asyncio.sleep(OFFER_EVERY)
                finished = sent - await it.store.left()
        emit("held", finished / (rate * args.seconds), "of the offer", offer=round(rate), seconds=args.seconds)
