"""Temporal's own Schedules by the bare SDK: many that are due at one instant, until the last run has been started."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleIntervalSpec,
    ScheduleSpec,
)

import semel
from bench import temporal_sdk as sdk
from bench.measure import Arguments, Stopwatch, arguments, callers, emit, until
from semel.engines.temporal.connect import connect, parse

CALLERS = 20
NOBODYS = "nobody"
EACH = 0.15  # seconds that are allowed for creating one
PATIENCE = 120.0
HOUR = 3600.0


async def schedules(args: Arguments) -> None:
    async with semel.App(args.url, config=None) as app:
        await app.migrate()  # makes the namespace
        client = await connect(parse(args.url, app.settings.temporal))
    due = datetime.now(UTC) + timedelta(seconds=10 + EACH * args.tasks)

    async def create(i: int) -> None:
        await client.create_schedule(f"due-{i}", hourly(due, f"run-{i}"))

    await callers(args.tasks, CALLERS, create)
    left = (due - datetime.now(UTC)).total_seconds()
    if left < 1:
        raise RuntimeError(f"{args.tasks} schedules could not be created before they were due")
    await asyncio.sleep(left)
    with Stopwatch() as watch:
        await until(lambda: all_started(client, args.tasks), PATIENCE, every=0.02)
    emit("schedules, due", args.tasks / watch.seconds, "1/s", slots=args.tasks, schedules=args.tasks)


def hourly(due: datetime, run: str) -> Schedule:
    offset = timedelta(seconds=due.timestamp() % HOUR)
    action = ScheduleActionStartWorkflow(sdk.Nothing.run, id=run, task_queue=NOBODYS)
    return Schedule(action=action, spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(hours=1), offset)]))


async def all_started(client: Client, count: int) -> bool:
    found = await client.count_workflows("WorkflowType = 'Nothing'")
    return found.count >= count


if __name__ == "__main__":
    ARGS = arguments()
    if ARGS.part != "schedules":
        sys.exit(f"Temporal's Schedules have no part {ARGS.part!r}")
    asyncio.run(schedules(ARGS))
