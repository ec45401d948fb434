"""A task can say how far it is, and everybody can read it."""

import asyncio
import threading

import semel
from tests.world import World, eventually


async def test_progress_of_an_async_task_is_shown_while_it_runs(world: World) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task
    async def work() -> None:
        semel.current().heartbeat("3 of 10")
        await goes_on.wait()

    async with world.worker(app) as worker:
        handle = await app.enqueue(work, task_id="k")
        await eventually(lambda: worker.busy)
        await eventually(lambda: shows(world, handle, "3 of 10"))
        assert "Progress: 3 of 10" in str(await world.app().explain("k"))
        goes_on.set()
        await handle.result(timeout="60s")
    assert (await handle.describe()).progress is None


async def test_progress_of_a_sync_task_too_and_any_value_will_do(world: World) -> None:
    app, goes_on = world.app(), threading.Event()

    @app.task
    def work() -> None:
        semel.current().heartbeat(progress={"done": 3})
        goes_on.wait(60)

    async with world.worker(app) as worker:
        handle = await app.enqueue(work)
        await eventually(lambda: worker.busy)
        await eventually(lambda: shows(world, handle, "{'done': 3}"))
        goes_on.set()


async def shows(world: World, handle: semel.Handle[None], progress: str) -> bool:
    await world.advance(0)
    return (await handle.describe()).progress == progress


async def test_progress_that_databases_find_hard(world: World) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task
    async def work() -> str:
        semel.current().heartbeat("nul \x00, \ud800, " + "x" * 5000)
        await goes_on.wait()
        return "done"

    async with world.worker(app) as worker:
        handle = await app.enqueue(work)
        await eventually(lambda: worker.busy)
        await world.advance(0)
        await eventually(lambda: has_progress(handle))
        assert worker.healthy
        goes_on.set()
        assert await handle.result(timeout="60s") == "done"


async def has_progress(handle: semel.Handle[str]) -> bool:
    return (await handle.describe()).progress is not None
