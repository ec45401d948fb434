"""The work of `temporal_flows.py` for the bare SDK. A module of its own, which loads nothing that the SDK does not
need: its sandbox loads it again for every workflow."""

from datetime import timedelta

from temporalio import activity, workflow

SOON = timedelta(seconds=60)


@activity.defn(name="sdk_add")
async def add(total: int) -> int:
    return total + 1


@workflow.defn
class Nothing:
    @workflow.run
    async def run(self) -> int:
        return 1


@workflow.defn
class Task:
    """What a task that was asked for from outside is: one activity."""

    @workflow.run
    async def run(self) -> int:
        return await workflow.execute_activity(add, 0, start_to_close_timeout=SOON)


@workflow.defn
class Activities:
    @workflow.run
    async def run(self, count: int) -> int:
        total = 0
        for _ in range(count):
            total = await workflow.execute_activity(add, total, start_to_close_timeout=SOON)
        return total


@workflow.defn
class Local:
    @workflow.run
    async def run(self, count: int) -> int:
        total = 0
        for _ in range(count):
            total = await workflow.execute_local_activity(add, total, start_to_close_timeout=SOON)
        return total
