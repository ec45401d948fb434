"""A workflow asks for work under a key that a failed one holds: the new execution has all that was asked for."""

import asyncio

import pytest

import semel
from tests.world import World, ended, eventually


async def test_a_delay(world: World) -> None:
    app = world.app()
    tries = 0

    @app.task(retry=1, retention="3h", dedup_window="5h", priority=3)
    async def work() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("the first time")
        return tries

    @app.workflow
    async def waits_for_it(ctx: semel.Context) -> int:
        return await ctx.execute_task(work, task_id="waited", delay="1h")

    @app.workflow
    async def asks_for_it(ctx: semel.Context) -> None:
        await ctx.enqueue(work, task_id="asked", delay="1h", priority=12, queue="other")

    async with world.worker(app):
        failed = await app.enqueue(work, task_id="waited")
        assert await ended(failed) == "failed"
        flow = await app.start_workflow(waits_for_it, workflow_id="waits")
        again = await eventually(lambda: newer(app, failed))
        told, before = await again.describe(), await failed.describe()
        assert told.status == "pending"
        for name in ("name", "queue", "priority", "max_attempts", "retention", "window"):
            assert getattr(told, name) == getattr(before, name), name
        assert_in_an_hour(told)
        await world.advance("61m")
        assert await flow.result(timeout="60s") == 2

        tries = 0
        failed = await app.enqueue(work, task_id="asked")
        assert await ended(failed) == "failed"
        await (await app.start_workflow(asks_for_it, workflow_id="asks")).result(timeout="60s")
        told = await (await eventually(lambda: newer(app, failed))).describe()
        assert (told.status, told.queue, told.priority) == ("pending", "other", 12)
        assert_in_an_hour(told)


def assert_in_an_hour(told: semel.Execution) -> None:
    assert told.run_at is not None
    assert (told.run_at - told.created_at).total_seconds() == pytest.approx(3600, abs=60)


async def newer(app: semel.App, old: semel.Handle[int]) -> semel.Handle[int] | None:
    found = await app.find(old.key or "")
    return None if found is None or found.id == old.id else found


async def test_a_timeout(world: World) -> None:
    app = world.app()
    begun = asyncio.Event()
    tries = 0

    def count() -> int:
        nonlocal tries
        tries += 1
        return tries

    @app.workflow(timeout="5m")
    async def child(ctx: semel.Context) -> None:
        if await ctx.step(count) == 1:
            raise ValueError("the first time")
        begun.set()
        await ctx.wait_signal("never")

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        await ctx.execute_workflow(child, workflow_id="child")

    async with world.worker(app):
        assert await ended(await app.start_workflow(child, workflow_id="child")) == "failed"
        flow = await app.start_workflow(parent, workflow_id="parent")
        await begun.wait()
        await world.advance("6m")
        with pytest.raises(semel.ExecutionFailed, match="timed out"):
            await flow.result(timeout="60s")
