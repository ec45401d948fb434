"""What events cost, beside tasks in the same run: lists and many callers, with 100 activities of which one matches."""

from typing import Any

from bench.measure import BULK, CALLERS, Arguments, Stopwatch, callers, emit
from bench.semel_setup import semel
from semel import EventEnvelope

ACTIVITIES = 100


async def events(args: Arguments) -> None:
    async with semel(args) as it:
        for number in range(ACTIVITIES):
            where = "data.cents > 0" if number % 2 == 0 else None
            it.app.on_event(f"type-{number}.*", id=f"activity-{number}", where=where)(it.noop)
        await it.app.apply()
        await it.app.enqueue(it.noop, task_id="first")  # connects, migrates, prepares
        await it.app.publish(event("first"))
        emit("events, tasks in lists", await it.enqueue_all(it.noop, args.tasks, "bulk-"), "1/s", list=BULK)
        with Stopwatch() as watch:
            for start in range(0, args.tasks, BULK):
                some = range(start, min(start + BULK, args.tasks))
                await it.app.publish_many([event(f"bulk-{i}") for i in some])
        emit("events, lists", args.tasks / watch.seconds, "1/s", list=BULK, activities=ACTIVITIES)

        async def enqueue(i: int) -> Any:
            return await it.app.enqueue(it.noop, task_id=f"many-{i}")

        async def publish(i: int) -> Any:
            return await it.app.publish(event(f"many-{i}"))

        for name, once in (("tasks of many callers", enqueue), ("many callers", publish)):
            emit(f"events, {name}", await callers(args.tasks, CALLERS, once), "1/s", callers=CALLERS)
        for name, again in (("duplicates of tasks", enqueue), ("duplicates", publish)):
            emit(f"events, {name}", await callers(args.tasks, CALLERS, again), "1/s", callers=CALLERS)
        runs = await it.store.count("select count(*) from semel_run")
        if runs != 2 * args.tasks + 1:
            raise RuntimeError(f"{2 * args.tasks + 1} events were new, and {runs} have run")


def event(id: str) -> EventEnvelope:
    """One that one activity wants."""
    return EventEnvelope(event_id=id, source="/bench", type="type-42.made", data={"cents": 900, "order": id})
