"""The same work for Semel and for the bare SDK. A module of its own: both load it into Temporal's sandbox."""

from datetime import timedelta

from temporalio import activity, workflow

import semel

app = semel.App(config=None)
SOON = timedelta(seconds=60)


@app.task
async def noop() -> int:
    return 1


@app.task(retry=1)
async def add(total: int) -> int:
    return total + 1


@app.workflow
async def nothing(ctx: semel.Context) -> int:
    return 1


@app.workflow
async def by_tasks(ctx: semel.Context, count: int) -> int:
    total = 0
    for _ in range(count):
        total = await ctx.execute_task(add, total)
    return total


@app.workflow
async def by_steps(ctx: semel.Context, count: int) -> int:
    total = 0
    for _ in range(count):
        total = await ctx.step(_add, total)
    return total


async def _add(total: int) -> int:
    return total + 1


@activity.defn(name="sdk_add")
async def sdk_add(total: int) -> int:
    return total + 1


@workflow.defn
class SdkNothing:
    @workflow.run
    async def run(self) -> int:
        return 1


@workflow.defn
class SdkTask:
    """What a task that was asked for from outside is: one activity."""

    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(sdk_add, 0, start_to_close_timeout=SOON)


@workflow.defn
class SdkActivities:
    @workflow.run
    async def run(self, count: int) -> int:
        total = 0
        for _ in range(count):
            total = await workflow.execute_activity(sdk_add, total, start_to_close_timeout=SOON)
        return total


@workflow.defn
class SdkLocal:
    @workflow.run
    async def run(self, count: int) -> int:
        total = 0
        for _ in range(count):
            total = await workflow.execute_local_activity(sdk_add, total, start_to_close_timeout=SOON)
        return total
