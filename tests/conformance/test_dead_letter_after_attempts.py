"""A task that takes its worker with it is dead-lettered after its attempts, never run for ever."""

import asyncio

import pytest

import semel
from tests.world import World, ended, eventually


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_it_ends_failed_and_can_be_redriven(world: World) -> None:
    runs: list[int] = []

    def define() -> semel.App:
        app = world.app()

        @app.task(retry=2)
        async def poison() -> str:
            runs.append(semel.current().attempt)
            if len(runs) <= 2:
                await asyncio.Event().wait()
            return "survived"

        return app

    apps = [define() for _ in range(3)]
    handle = await apps[0].enqueue(apps[0].tasks["poison"], task_id="k")
    for at in range(2):
        async with world.worker(apps[at], grace=0) as dies:
            await eventually(lambda n=at: len(runs) == n + 1)
            await world.cut_off(dies)
            async with world.worker(apps[2], queues=["elsewhere"]):
                await world.advance("31s")
                await eventually(lambda n=at: lost(handle, n + 1))
    assert await ended(handle) == "failed"
    with pytest.raises(semel.ExecutionFailed, match=r"died or went silent while running this task \(2 times") as caught:
        await handle.result(timeout="60s")
    assert caught.value.error_type == "semel.WorkerLost"
    assert [one.id for one in await apps[0].list(status="failed")] == [handle.id]
    async with world.worker(apps[2]):
        assert await (await apps[2].redrive(handle.id)).result(timeout="60s") == "survived"
    assert runs == [1, 2, 1]


async def lost(handle: semel.Handle[str], attempt: int) -> bool:
    execution = await handle.describe()
    return execution.status in ("pending", "failed") and execution.attempt == attempt
