"""A worker whose lease ran out cannot write: its tasks belong to others."""

import asyncio

import pytest

import semel
from tests.world import World, eventually


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_the_late_completion_of_a_zombie_is_refused(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one, two = world.app(), world.app()
    started, zombie_may_end, results = asyncio.Event(), asyncio.Event(), iter(["zombie", "heir"])
    for app in (one, two):

        @app.task
        async def work() -> str:
            result = next(results)
            if result == "zombie":
                started.set()
                await zombie_may_end.wait()
            return result

    handle = await one.enqueue(work, task_id="k")
    async with world.worker(one) as zombie:
        await started.wait()
        await world.cut_off(zombie)
        async with world.worker(two):
            await world.advance("31s")
            assert await handle.result(timeout="60s") == "heir"
            zombie_may_end.set()
            await eventually(lambda: "stale completion refused" in caplog.text)
            assert await handle.result(timeout="60s") == "heir"
    execution = await handle.describe()
    assert (execution.status, execution.attempt) == ("completed", 2)
    assert await world.count() == 1


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_a_late_failure_of_a_zombie_is_refused_too(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one, two = world.app(), world.app()
    zombie_may_end, heir_may_end, runs = asyncio.Event(), asyncio.Event(), []
    for app in (one, two):

        @app.task(retry=semel.Retry(max_attempts=3, initial=0))
        async def work() -> str:
            runs.append(1)
            if len(runs) == 1:
                await zombie_may_end.wait()
                raise ValueError("late")
            await heir_may_end.wait()
            return "heir"

    handle = await one.enqueue(work)
    async with world.worker(one) as zombie:
        await eventually(lambda: runs)
        await world.cut_off(zombie)
        async with world.worker(two):
            await world.advance("31s")
            await eventually(lambda: len(runs) == 2)
            zombie_may_end.set()
            await eventually(lambda: "stale completion refused" in caplog.text)
            heir_may_end.set()
            assert await handle.result(timeout="60s") == "heir"
    assert len(runs) == 2


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_a_worker_that_wakes_up_without_its_lease_starts_over(world: World) -> None:
    one, two, runs = world.app(), world.app(), []
    for app in (one, two):

        @app.task
        async def work(n: int) -> int:
            runs.append(n)
            if runs.count(n) == 1 and n == 1:
                await asyncio.Event().wait()
            return n

    async with world.worker(one, lease="10m") as asleep:  # it does not beat by itself meanwhile
        first = await one.enqueue(work, 1)
        await eventually(lambda: runs)
        old = asleep.id
        world._workers.remove(asleep)
        async with world.worker(two):
            await world.advance("11m")
            assert await first.result(timeout="60s") == 1
        asleep.heart.due_in(0)
        await eventually(lambda: asleep.id != old)
        assert await (await one.enqueue(work, 2)).result(timeout="60s") == 2
        await eventually(lambda: asleep.healthy)
    assert runs == [1, 1, 2]
