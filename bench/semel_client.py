"""Semel as a contender: one process enqueues and looks on, `semel worker` processes do the work."""

import asyncio
import sys

from bench import semel_events, semel_flows, semel_long, semel_schedules, semel_transactions
from bench.measure import BULK, CALLERS, Arguments, arguments, callers, clock, emit, emit_latency
from bench.semel_setup import CONCURRENCY, semel

PAUSE = 0.01


async def throughput(args: Arguments) -> None:
    async with semel(args) as it:
        enqueue, noop = it.app.enqueue, it.noop
        await enqueue(noop, task_id="first")  # connects, migrates, prepares
        few = max(1, args.tasks // 10)
        rate = await callers(few, 1, lambda i: enqueue(noop, task_id=f"one-{i}"))
        emit("W1 x1", rate, "1/s")
        rate = await callers(args.tasks, CALLERS, lambda i: enqueue(noop, task_id=f"many-{i}"))
        emit("W1 many", rate, "1/s", callers=CALLERS)
        rate = await callers(args.tasks, CALLERS, lambda i: enqueue(noop, task_id=f"many-{i}"))
        emit("W3", rate, "1/s", callers=CALLERS)
        emit("W2", await it.drain(1 + few + args.tasks), "tasks/s", concurrency=CONCURRENCY)
        await it.enqueue_all(noop, args.tasks, "logged-")
        emit("W2 with logs", await it.drain(args.tasks, log_level="info"), "tasks/s", concurrency=CONCURRENCY)
        emit("W1 bulk", await it.enqueue_all(noop, 2 * args.tasks, "bulk-"), "1/s", list=BULK)
        two = await it.drain(2 * args.tasks, workers=2)
        emit("W2 two workers", two, "tasks/s", concurrency=CONCURRENCY, workers=2)
        await it.enqueue_all(it.noop_sync, args.tasks, "sync-")
        emit("W2 sync", await it.drain(args.tasks), "tasks/s", concurrency=CONCURRENCY)


async def latency(args: Arguments) -> None:
    async with semel(args) as it:
        seconds = []
        with it.worker():
            first = await it.app.enqueue(it.noop, task_id="first")
            await first.result(timeout=30)
            await asyncio.sleep(1)
            for i in range(args.samples):
                began = clock()
                handle = await it.app.enqueue(it.noop, task_id=f"one-{i}")
                if await handle.result(timeout=10) != 1 or handle.duplicate:
                    raise RuntimeError("the result is wrong, or not new")
                seconds.append(clock() - began)
                await asyncio.sleep(PAUSE)
        emit_latency(seconds)


def main() -> None:
    args = arguments()
    parts = {
        "throughput": throughput,
        "latency": latency,
        "history": semel_long.history,
        "memory": semel_long.memory,
        "idle": semel_long.idle,
        "held": semel_long.held,
        "steps": semel_flows.steps,
        "sleepers": semel_flows.sleepers,
        "entities": semel_flows.entities,
        "endless": semel_flows.endless,
        "schedules": semel_schedules.schedules,
        "events": semel_events.events,
        "transactions": semel_transactions.transactions,
    }
    if args.part not in parts:
        sys.exit(f"Semel has no part {args.part!r}")
    asyncio.run(parts[args.part](args))


if __name__ == "__main__":
    main()
