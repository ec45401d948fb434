"""What has not begun will not; what runs is asked to stop; what has ended stays."""

import asyncio
import threading

import pytest

import semel
from semel import Status
from tests.world import World, ended, eventually


async def test_one_that_waits(world: World) -> None:
    app, runs = world.app(), []

    @app.task
    async def work(n: int) -> int:
        runs.append(n)
        return n

    waits, later = await app.enqueue(work, 1), await app.enqueue(work, 2, delay="1h")
    assert [await waits.cancel(), await later.cancel()] == [Status.CANCELLED] * 2
    assert [await waits.status(), await later.status()] == [Status.CANCELLED] * 2
    assert await waits.cancel() is Status.CANCELLED
    async with world.worker(app):
        await world.advance("2h")
        assert await (await app.enqueue(work, 3)).result(timeout="60s") == 3
    assert runs == [3]
    with pytest.raises(semel.ExecutionCancelled) as caught:
        await waits.result(timeout="60s")
    assert caught.value.execution_id == waits.id


async def test_one_that_waits_wakes_who_waits_for_it(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    handle = await app.enqueue(work)
    waiter = asyncio.create_task(handle.result(timeout="60s"))
    await asyncio.sleep(0)
    await handle.cancel()
    with pytest.raises(semel.ExecutionCancelled):
        await waiter


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_async_one_that_runs_is_interrupted(world: World, elsewhere: bool) -> None:
    app, cleaned_up = world.app(), []

    @app.task
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append(semel.current().cancelled)

    async with world.worker(app):
        handle = await app.enqueue(work, task_id="k")
        await eventually(lambda: is_running(handle))
        other = await (world.app() if elsewhere else app).get(handle.id)
        assert await other.cancel() is Status.RUNNING
        assert await ended(handle) == "cancelled"
    assert cleaned_up == [True]
    execution = await handle.describe()
    assert (execution.attempt, execution.error) == (1, None)


async def is_running(handle: semel.Handle[object]) -> bool:
    return await handle.status() is Status.RUNNING


@pytest.mark.parametrize("way", ["raises", "returns"])
async def test_a_sync_one_that_runs_sees_it_and_decides(world: World, way: str) -> None:
    app, started = world.app(), threading.Event()

    @app.task(retry=semel.Retry(max_attempts=5, initial=0))
    def work() -> str:
        running = semel.current()
        started.set()
        for _ in range(4000):
            if running.cancelled:
                break
            threading.Event().wait(0.005)
        if way == "raises":
            raise RuntimeError("stopped half way")
        return "finished anyway"

    async with world.worker(app):
        handle = await app.enqueue(work)
        await eventually(started.is_set)
        assert await handle.cancel() is Status.RUNNING
        assert await ended(handle) == ("cancelled" if way == "raises" else "completed")
    assert (await handle.describe()).attempt == 1


@pytest.mark.journal("keeps the news of a cancellation from a hub")
async def test_a_cancelled_attempt_that_fails_is_not_tried_again(world: World) -> None:
    app, runs, goes_on = world.app(), [], asyncio.Event()

    @app.task(retry=semel.Retry(max_attempts=5, initial=0))
    async def work() -> None:
        runs.append(1)
        await goes_on.wait()
        raise ValueError("as it happens")

    async with world.worker(app) as worker:
        handle = await app.enqueue(work)
        await eventually(lambda: runs)
        news = worker.hub.on_cancel[:]
        worker.hub.on_cancel.clear()  # they do not arrive in time
        assert await handle.cancel() is Status.RUNNING
        worker.hub.on_cancel += news
        goes_on.set()
        assert await ended(handle) == "cancelled"
    assert runs == [1]


async def test_one_that_has_ended_stays_as_it_is(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    async with world.worker(app):
        handle = await app.enqueue(work)
        await handle.result(timeout="60s")
        assert await handle.cancel() is Status.COMPLETED
        assert await handle.result(timeout="60s") == "done"


async def test_one_that_is_not_there(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    handle = await app.enqueue(work)
    handle.id = "0" * 32
    with pytest.raises(semel.NotFound):
        await handle.cancel()


async def test_one_that_waits_for_another_attempt(world: World) -> None:
    app = world.app()

    @app.task(retry=semel.Retry(max_attempts=5, initial="1h"))
    async def work() -> None:
        raise ValueError("first")

    async with world.worker(app):
        handle = await app.enqueue(work)
        await eventually(lambda: is_put_off(handle))
        assert await handle.cancel() is Status.CANCELLED
        assert (await handle.describe()).attempt == 1


async def is_put_off(handle: semel.Handle[object]) -> bool:
    return (await handle.describe()).run_at is not None
