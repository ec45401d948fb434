"""A function in a transaction cannot use the app: it is told so at once, rather than wait for itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import semel
from tests.world import World, eventually

pytestmark = pytest.mark.slow


async def through_the_workers_loop(app: semel.App, task: Any, loop: asyncio.AbstractEventLoop) -> None:
    def ask() -> None:
        asyncio.run_coroutine_threadsafe(app.enqueue(task, task_id="t"), loop).result(60)

    await asyncio.to_thread(ask)


USES: dict[str, Callable[[semel.App, Any, asyncio.AbstractEventLoop], object]] = {
    "sync": lambda app, task, loop: app.sync.enqueue(task, task_id="t"),
    "sync read": lambda app, task, loop: app.sync.find("t"),
    "sync list": lambda app, task, loop: app.sync.list(),
    "sync close": lambda app, task, loop: app.sync.close(),
    "own loop": lambda app, task, loop: asyncio.run(app.enqueue(task, task_id="t")),
    "own loop, close": lambda app, task, loop: asyncio.run(app.close()),
    "its loop": lambda app, task, loop: asyncio.run_coroutine_threadsafe(
        app.enqueue(task, task_id="t"), loop
    ).result(60),
    "a thread, its loop": lambda app, task, loop: asyncio.run(through_the_workers_loop(app, task, loop)),
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
async def test_it_is_refused_and_the_app_goes_on(world: World, use: str) -> None:
    app, loop = world.app(), asyncio.get_running_loop()

    @app.task
    async def task() -> int:
        return 1

    def uses(tx: Any) -> None:
        USES[use](app, task, loop)

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        try:
            await ctx.transaction(uses)
        except semel.ExecutionFailed as error:
            heard = [error.error_type, error.error_message]
        await ctx.enqueue(task, task_id="t")
        return heard

    async with world.worker(app):
        kind, message = await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
        assert kind == "semel.Forbidden"
        assert "ctx.enqueue" in message
        handle = await app.enqueue(task, task_id="t")
        assert handle.duplicate
        assert await handle.result(timeout="60s") == 1


async def test_what_it_left_to_others_is_done_when_it_has_returned(world: World) -> None:
    app, loop = world.app(), asyncio.get_running_loop()
    later: list[asyncio.Task[Any]] = []
    returned = asyncio.Event()

    @app.task
    async def task() -> int:
        return 1

    async def ask() -> Any:
        await returned.wait()
        return await app.enqueue(task, task_id="t")

    def leaves(tx: Any) -> None:
        loop.call_soon_threadsafe(lambda: later.append(asyncio.create_task(ask())))

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.transaction(leaves)

    async with world.worker(app):
        await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
        await eventually(lambda: later)
        returned.set()
        assert await (await later[0]).result(timeout="60s") == 1
