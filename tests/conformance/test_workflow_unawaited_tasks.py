"""What a workflow has started happens, awaited or not, however the workflow ends."""

import asyncio

import pytest

import semel
from tests.world import World, ended, eventually


@pytest.mark.parametrize("how", ["completed", "failed", "continued"])
async def test_what_was_started_and_not_awaited_runs(world: World, how: str) -> None:
    app, began, done, release = world.app(), list[str](), list[str](), asyncio.Event()

    @app.task
    async def work(what: str) -> None:
        began.append(what)
        await release.wait()
        done.append(what)

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await ctx.execute_task(work, "of child")

    @app.workflow
    async def flow(ctx: semel.Context, run: int = 1) -> None:
        if run == 2:
            return
        left = [asyncio.create_task(ctx.execute_task(work, "early, with a key", task_id="early"))]
        if how != "continued":  # on Temporal what has begun in this run, and has no key, is asked to stop with it
            left.append(asyncio.create_task(ctx.execute_task(work, "early")))
        await ctx.wait_signal("end")
        if how != "continued":  # begins before the child has begun, and so before the end
            left.append(asyncio.create_task(ctx.execute_task(work, "late")))
        left.append(asyncio.create_task(ctx.execute_task(work, "late, with a key", task_id="late")))
        await ctx.start_workflow(child, workflow_id="c")
        left.append(asyncio.create_task(ctx.enqueue(work, "enqueued")))
        left.append(asyncio.create_task(ctx.execute_task(work, "last")))
        if how == "failed":
            raise ValueError("enough")
        if how == "continued":
            ctx.continue_as_new(2)

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: len(began) == (1 if how == "continued" else 2))
        await handle.signal("end")
        all_of_it = ["early, with a key", "enqueued", "last", "late, with a key", "of child"]
        all_of_it = sorted([*all_of_it, *(["early", "late"] if how != "continued" else [])])
        await eventually(lambda: sorted(began) == all_of_it)
        release.set()
        assert await ended(handle) == ("failed" if how == "failed" else "completed")
        await eventually(lambda: sorted(done) == all_of_it)
        assert sorted(began) == all_of_it


async def test_what_was_given_up_does_not_run_and_a_step_goes_with_its_workflow(world: World) -> None:
    app, ran = world.app(), list[str]()

    @app.task
    async def work(what: str) -> None:
        ran.append(what)

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        given_up = asyncio.create_task(ctx.execute_task(work, "given up"))
        left = asyncio.create_task(ctx.step(ran.append, "step", name="step"))
        await asyncio.sleep(0)
        given_up.cancel()
        left.add_done_callback(lambda _: None)

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await handle.result(timeout="60s")
        await (await app.enqueue(work, "other")).result(timeout="60s")
    assert ran == ["other"]
