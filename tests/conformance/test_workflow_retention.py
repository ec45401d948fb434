"""A finished workflow and all that belongs to it is kept for thirty days; of a live one nothing is ever dropped."""

import pytest

import semel
from tests.world import World, ended, eventually, waits


async def test_the_default_is_thirty_days(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        ctx.publish("x", 1)
        ctx.search_attributes["scope"] = "eu"
        return await ctx.step(lambda: "done")

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await handle.result(timeout="60s")
    await world.advance("719h")
    await world.clean(app)
    assert await handle.result(timeout="60s") == "done"
    assert await handle.published("x") == 1
    await world.advance("2h")
    await world.clean(app)
    with pytest.raises(semel.ResultExpired):
        await handle.result(timeout="60s")
    assert await world.count() + await world.parts() == 0


async def test_keys_outlive_runs(world: World) -> None:
    app, runs = world.app(), []

    @app.workflow(retention="1d", dedup_window="10d")
    async def flow(ctx: semel.Context) -> None:
        runs.append(1)
        ctx.publish("x", 1)

    async with world.worker(app):
        first = await app.start_workflow(flow, workflow_id="k")
        await first.result(timeout="60s")
        await world.advance("2d")
        await world.clean(app)
        assert await world.parts() == 0
        second = await app.start_workflow(flow, workflow_id="k")
        assert (second.id, second.duplicate) == (first.id, True)
        await world.advance("9d")
        await world.clean(app)
        third = await app.start_workflow(flow, workflow_id="k")
        assert not third.duplicate
        await third.result(timeout="60s")
    assert runs == [1, 1]


async def test_nothing_of_a_live_one_is_dropped(world: World) -> None:
    app = world.app()

    @app.workflow(retention="0")
    async def flow(ctx: semel.Context) -> tuple[int, str]:
        ctx.publish("x", 1)
        ctx.search_attributes["scope"] = "eu"
        first = await ctx.step(lambda: 1)
        return first, await ctx.wait_signal("go")

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        for _ in range(3):
            await world.advance("365d")
            await world.clean(app)
        assert (await handle.published("x"), await handle.attributes()) == (1, {"scope": "eu"})
        await handle.signal("go", "on")
        await ended(handle)
        assert await handle.result(timeout="60s") == (1, "on")


async def test_what_an_open_workflow_asked_for_stays_as_long_as_it_is_open(world: World) -> None:
    app = world.app()

    @app.task(retention="0")
    async def work() -> str:
        return "worked"

    @app.workflow(retention="1h")
    async def child(ctx: semel.Context) -> str:
        return await ctx.execute_task(work, task_id="t")

    @app.workflow(retention="1h")
    async def parent(ctx: semel.Context) -> str:
        result = await ctx.execute_workflow(child, workflow_id="c")
        await ctx.wait_signal("go")
        return result

    async with world.worker(app):
        handle = await app.start_workflow(parent, workflow_id="p")
        await eventually(lambda: is_there(app, "c", "completed"))
        await waits(handle)
        await world.advance("10d")
        await world.clean(app)
        assert {e.name for e in await app.list()} == {"parent", "child", "work"}
        assert await (await app.enqueue(work, task_id="t")).result(timeout="60s") == "worked"
        await handle.signal("go")
        assert await handle.result(timeout="60s") == "worked"
    await world.advance("3h")
    await world.clean(app)
    assert await app.list() == []


async def is_there(app: semel.App, key: str, status: str) -> bool:
    found = await app.find(key, kind="workflow")
    return found is not None and await found.status() == status
