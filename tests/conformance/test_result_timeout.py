"""result(timeout=…) gives up waiting; the execution goes on."""

import asyncio
import time

import pytest

import semel
from tests.world import SOON, World


async def test_it_raises_and_the_execution_goes_on(world: World) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task
    async def work() -> str:
        await goes_on.wait()
        return "done"

    async with world.worker(app):
        handle = await app.enqueue(work)
        for timeout in (0, "20ms"):
            began = time.monotonic()
            with pytest.raises(semel.ResultPending, match="It goes on: ask again") as caught:
                await handle.result(timeout=timeout)
            assert time.monotonic() - began < SOON
            assert caught.value.execution_id == handle.id
            assert isinstance(caught.value, TimeoutError)
        goes_on.set()
        assert await handle.result(timeout="60s") == "done"
        assert await handle.result(timeout=0) == "done"
        assert await handle.result() == "done"


async def test_a_waiter_that_is_cancelled_leaves_the_execution_alone(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    handle = await app.enqueue(work)
    waiter = asyncio.create_task(handle.result())
    await asyncio.sleep(0.02)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    async with world.worker(app):
        assert await handle.result(timeout="60s") == "done"


async def test_a_bad_timeout_is_named(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.task
    async def work() -> None: ...

    handle = await app.enqueue(work)
    with pytest.raises(semel.InvalidValue, match="timeout='soon'"):
        await handle.result(timeout="soon")
