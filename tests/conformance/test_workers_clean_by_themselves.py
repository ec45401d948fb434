"""Nobody has to call `clean`: a worker drops what is past its retention, and frees work that no lease covers."""

import asyncio

import pytest

import semel
from tests.world import World, eventually


async def is_gone(handle: semel.Handle[object]) -> bool:
    try:
        await handle.status()
    except semel.NotFound:
        return True
    return False


async def test_a_worker_drops_tasks_after_seven_days_and_workflows_after_thirty(world: World) -> None:
    app = world.app()

    @app.task
    async def charge() -> str:
        return "charged"

    @app.workflow
    async def order(ctx: semel.Context) -> str:
        return "ordered"

    async with world.worker(app, clean_every="1s"):
        task, flow = await app.enqueue(charge), await app.start_workflow(order, workflow_id="o-1")
        assert [await task.result(timeout="60s"), await flow.result(timeout="60s")] == ["charged", "ordered"]
        await world.listed()
        await world.advance("8d")
        await eventually(lambda: is_gone(task))
        assert await flow.result(timeout="60s") == "ordered"
        await world.advance("21d")
        assert await flow.result(timeout="60s") == "ordered"
        await world.advance("2d")
        await eventually(lambda: is_gone(flow))


async def test_a_short_retention_is_kept_however_seldom_the_worker_cleans_otherwise(world: World) -> None:
    app = world.app()

    @app.task(retention="0")
    async def charge() -> str:
        return "charged"

    async with world.worker(app, clean_every="7d"):
        handle = await app.enqueue(charge)
        await eventually(lambda: is_gone(handle))


@pytest.mark.journal("a cluster has no leases: it gives the work of a dead worker to another by itself")
async def test_a_worker_frees_claims_that_no_lease_covers(world: World) -> None:
    """A lease that was deleted by hand, or is missing after a restore: nobody finds it expired."""
    app, begun, end = world.app(), asyncio.Event(), asyncio.Event()
    runs = 0

    @app.task
    async def charge() -> str:
        nonlocal runs
        runs += 1
        begun.set()
        if runs == 1:
            await end.wait()
        return f"run {runs}"

    async with world.worker(app) as frozen:
        handle = await app.enqueue(charge)
        await asyncio.wait_for(begun.wait(), 60)
        await world.cut_off(frozen)
        await world.sql("delete from semel_worker")
        async with world.worker(app, clean_every="1s"):
            assert await handle.result(timeout="60s") == "run 2"
        end.set()
    assert runs == 2
