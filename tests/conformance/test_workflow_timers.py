"""A timer outlives every worker, and goes off once."""

import asyncio

import pytest

import semel
from tests.world import World, ended, eventually, waits


async def test_one_that_elapsed_while_nobody_was_there_goes_off_at_once(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> float:
        began = ctx.now()
        await asyncio.sleep(3600)
        return (ctx.now() - began).total_seconds()

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        assert (await handle.describe()).run_at is not None
    await world.advance("1d")
    async with world.worker(app):
        assert await handle.result(timeout="60s") >= 24 * 3600


async def test_a_long_one_survives_restarts(world: World) -> None:
    app, runs = world.app(), []

    async def note(what: str) -> None:
        runs.append(what)

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        await ctx.step(note, "before")
        await ctx.sleep("365d")
        await ctx.step(note, "after")
        return "done"

    handle = await app.start_workflow(flow, workflow_id="k")
    async with world.worker(app):
        await waits(handle)
    for _ in range(4):
        await world.advance("91d")
        async with world.worker(app):
            await waits(handle)
    assert runs == ["before"]
    await world.advance("2d")
    async with world.worker(app):
        assert await handle.result(timeout="60s") == "done"
    assert runs == ["before", "after"]


@pytest.mark.parametrize("seconds", [2.6e11, 1e300, float("inf")])
async def test_one_without_an_end_can_be_slept_and_read(world: World, seconds: float) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            return "woken"
        return "slept"

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        assert (await handle.describe()).key == "k"
        await world.listed()
        assert [one.key for one in await app.list(kind="workflow")] == ["k"]
        assert (await handle.history())[-1].kind == "timer"
        await handle.cancel()
        assert await handle.result(timeout="60s") == "woken"


async def test_a_task_that_takes_too_long_is_given_up_and_cancelled(world: World) -> None:
    app = world.app()

    @app.task(queue="nobody")
    async def work() -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            async with asyncio.timeout(60):
                await ctx.execute_task(work, task_id="t")
        except TimeoutError:
            return "late"
        return ""

    async with world.worker(app, queues=["default"], cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        task = await eventually(lambda: app.find("t"))
        await world.advance("61s")
        assert await handle.result(timeout="60s") == "late"
        assert await ended(task) == "cancelled"


async def test_what_came_in_time_is_in_time_however_late_it_is_read(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        return await ctx.wait_signal("x", timeout="1h")

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
    await world.advance("59m")
    await handle.signal("x", "in time")
    await world.advance("1d")
    async with world.worker(app):
        assert await handle.result(timeout="60s") == "in time"


async def test_many_of_them(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        order: list[int] = []

        async def one(n: int) -> None:
            await asyncio.sleep(3600 + (n * 37 % 100))
            order.append(n)

        await asyncio.gather(*(one(n) for n in range(100)))
        return order

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await world.advance("2h")
        assert await handle.result(timeout="60s") == sorted(range(100), key=lambda n: n * 37 % 100)


async def test_sleeping_workflows_hold_no_place(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await asyncio.sleep(3600)

    async with world.worker(app, concurrency=1) as worker:
        flows = [await app.start_workflow(flow, workflow_id=f"k{n}") for n in range(40)]
        await eventually(lambda: all_wait(flows))
        assert worker.busy == []
        assert await (await app.enqueue(work)).result(timeout="60s") == "done"
        await world.advance("61m")
        for one in flows:
            await one.result(timeout="60s")


async def all_wait(flows: list[semel.Handle[None]]) -> bool:
    return all([await flow.status() == "waiting" for flow in flows])
