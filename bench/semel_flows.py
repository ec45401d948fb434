"""The measures of workflows and entities: recorded steps, many that sleep, messages."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from bench.measure import (
    LONG,
    STEPS,
    WORKFLOWS,
    Arguments,
    Stopwatch,
    callers,
    cpu_seconds,
    emit,
    emit_median,
    resident_mb,
    until,
)
from bench.semel_app import Counter
from bench.semel_setup import CONCURRENCY, Semel, semel
from bench.semel_store import AWAKE, JOURNAL, MAIL, SEEN, SNAPSHOT, WAKERS

PATIENCE = 120.0
REPEATS = 5
STARTERS = 1000  # callers that start workflows in bulk
SENDERS = 500  # callers that send messages
ENTITIES = 1000
BACKLOG = 20_000  # messages that wait at most for the entity that gets very many
SETTLED = 3.0  # seconds after which a worker that has just been busy is idle
LOOK_EVERY = 0.2  # a look at 100,000 workflows is not free: rare enough not to slow what it looks at
A_DAY = 86_400.0


async def steps(args: Arguments) -> None:
    """W4. The worker is up; the clock runs from the first start until the last result is here."""
    async with semel(args) as it:

        async def run(key: str, count: int) -> None:
            handle = await it.app.start_workflow(it.steps, count, workflow_id=key)
            if await handle.result(timeout=PATIENCE) != count or handle.duplicate:
                raise RuntimeError("the result is wrong, or not new")

        async def rate(workflows: int, count: int, prefix: str) -> float:
            with Stopwatch() as watch:
                await asyncio.gather(*(run(f"{prefix}-{i}", count) for i in range(workflows)))
            return workflows * count / watch.seconds

        with it.worker():
            await run("first", STEPS)
            many = [await rate(WORKFLOWS, STEPS, f"many-{n}") for n in range(REPEATS)]
            emit_median("W4 500x10", many, "steps/s", concurrency=CONCURRENCY)
            long = [await rate(1, LONG, f"long-{n}") for n in range(REPEATS)]
            emit_median("W4 1x1000", long, "steps/s")


async def sleepers(args: Arguments) -> None:
    """What a worker needs while all sleep, and how long it takes when many wake at one instant."""
    async with semel(args) as it:
        with it.worker() as worker:
            with Stopwatch() as watch:
                await put_to_sleep(it, it.sleeper, args.tasks, time.time() + A_DAY)
            emit("sleepers, falling asleep", args.tasks / watch.seconds, "1/s", callers=STARTERS)
            await asyncio.sleep(SETTLED)
            before = cpu_seconds(worker.pid)
            with Stopwatch() as watched:
                await asyncio.sleep(args.seconds)
            share = 100 * (cpu_seconds(worker.pid) - before) / watched.seconds
            emit("sleepers, idle CPU", share, "% of a core", sleeping=args.tasks, seconds=args.seconds)
            emit("sleepers, memory", resident_mb(worker.pid), "MB", sleeping=args.tasks)
            wakers = args.tasks // 10
            instant = time.time() + 5 + 2 * watch.seconds * wakers / args.tasks
            await put_to_sleep(it, it.waker, wakers, instant)
            if time.time() > instant:
                raise RuntimeError("not all were asleep at the instant at which they were to wake")
            await asyncio.sleep(instant - time.time())
            await until(lambda: none(it, WAKERS), PATIENCE, LOOK_EVERY)
            emit("sleepers, waking", time.time() - instant, "s", waking=wakers, sleeping=args.tasks)
        if await it.store.dead():
            raise RuntimeError("a workflow did not end well")


async def put_to_sleep(it: Semel, workflow: Any, count: int, instant: float) -> None:
    start = it.app.start_workflow
    name = workflow.name
    await callers(count, STARTERS, lambda i: start(workflow, instant, workflow_id=f"{name}-{i}"))
    await until(lambda: none(it, AWAKE), PATIENCE, LOOK_EVERY)


async def none(it: Semel, query: str) -> bool:
    return await it.store.count(query) == 0


async def entities(args: Arguments) -> None:
    """The worker is up; the clock runs from the first message until the last one is handled."""
    async with semel(args) as it:
        with it.worker():
            await it.app.entity(Counter, "first").ask("add", 1, timeout=PATIENCE)
            many = [it.app.entity(Counter, f"many-{i}") for i in range(ENTITIES)]
            rate = await deliver(it, many, args.tasks, "")
            emit("entities, many", rate, "messages/s", entities=ENTITIES, senders=SENDERS)
            one = [it.app.entity(Counter, "one")]
            few = max(1, args.tasks // 3)
            emit("entities, one", await deliver(it, one, few, ""), "messages/s", senders=SENDERS)


async def deliver(it: Semel, to: Sequence[Any], messages: int, prefix: str) -> float:
    """Messages with keys of their own, in turn to each; how many per second were sent and handled."""

    def send(i: int) -> Any:
        return to[i % len(to)].send("add", 1, dedup_key=f"{prefix}{i}")

    before = await total(to) if prefix else 0
    with Stopwatch() as watch:
        await callers(messages, SENDERS, send)
        await until(lambda: none(it, MAIL), PATIENCE, every=0.02)
    if await total(to) - before != messages:
        raise RuntimeError("a message was lost, or counted twice")
    return messages / watch.seconds


async def total(to: Sequence[Any]) -> int:
    return sum(state.total for state in await asyncio.gather(*(ref.state() for ref in to)))


async def endless(args: Arguments) -> None:
    """One entity that gets very many messages: what it keeps is bounded by its window, not by its life."""
    async with semel(args) as it:
        with it.worker() as worker:
            one = it.app.entity(Counter, "one")
            await one.ask("add", 1, timeout=PATIENCE)
            with Stopwatch() as watch:
                for start in range(0, args.tasks, BACKLOG):
                    await deliver(it, [one], min(BACKLOG, args.tasks - start), f"{start}-")
            emit("endless", args.tasks / watch.seconds, "messages/s", messages=args.tasks, senders=SENDERS)
            emit("endless, memory", resident_mb(worker.pid), "MB", messages=args.tasks)
            for work, query, unit in (
                ("endless, keys kept", SEEN, "rows"),
                ("endless, journal rows", JOURNAL, "rows"),
                ("endless, snapshot", SNAPSHOT, "bytes"),
            ):
                emit(work, await it.store.count(query), unit, messages=args.tasks)
