"""An attempt over its timeout is stopped; after the last one the execution is timed_out."""

import asyncio
import threading

import pytest

import semel
from tests.world import World, ended


async def test_an_async_task_is_interrupted(world: World) -> None:
    app, seen = world.app(), []

    @app.task(timeout="30ms", retry=1)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("interrupted")
            raise

    async with world.worker(app):
        handle = await app.enqueue(slow)
        assert await ended(handle) == "timed_out"
        with pytest.raises(semel.ExecutionTimedOut, match=r"ran longer than its timeout of 0\.03 s") as caught:
            await handle.result(timeout="60s")
    assert caught.value.execution_id == handle.id
    assert seen == ["interrupted"]


async def test_a_sync_task_is_left_behind(world: World) -> None:
    app, goes_on = world.app(), threading.Event()

    @app.task(timeout="30ms", retry=1)
    def slow() -> str:
        goes_on.wait(60)
        return "too late"

    async with world.worker(app):
        handle = await app.enqueue(slow)
        assert await ended(handle) == "timed_out"
        goes_on.set()
    assert await handle.status() == "timed_out"


async def test_it_is_tried_again_like_a_failure(world: World) -> None:
    app = world.app()

    @app.task(timeout="30ms", retry=semel.Retry(max_attempts=3, initial=0))
    async def slow() -> int:
        if semel.current().attempt < 3:
            await asyncio.Event().wait()
        return semel.current().attempt

    async with world.worker(app):
        assert await (await app.enqueue(slow)).result(timeout="60s") == 3


async def test_a_timeout_error_of_its_own_is_a_failure(world: World) -> None:
    app = world.app()

    @app.task(timeout="1h", retry=1)
    async def raises() -> None:
        raise TimeoutError("the provider's")

    async with world.worker(app):
        assert await ended(await app.enqueue(raises)) == "failed"


@pytest.mark.parametrize("timeout", ["0", 0, -1, "soon"])
def test_a_timeout_must_be_positive(timeout: object) -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    with pytest.raises(semel.InvalidValue, match="timeout="):

        @app.task(timeout=timeout)  # type: ignore[call-overload]
        async def work() -> None: ...
