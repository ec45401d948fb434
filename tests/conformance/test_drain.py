"""A worker that stops takes nothing new, lets running tasks finish, and gives the rest back."""

import asyncio
import contextlib
import threading

import semel
from tests.conformance.test_schedules import Shop
from tests.world import World, eventually


async def test_running_tasks_finish(world: World) -> None:
    app, started, goes_on = world.app(), asyncio.Event(), asyncio.Event()

    @app.task
    async def work() -> str:
        started.set()
        await goes_on.wait()
        return "finished"

    handle = await app.enqueue(work)
    async with world.worker(app):
        await started.wait()
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
    assert await handle.status() == "completed"
    assert await handle.result(timeout="60s") == "finished"
    assert await app.workers() == []


async def test_nothing_new_is_begun(world: World) -> None:
    app, begun, goes_on = world.app(), [], asyncio.Event()

    @app.task(retry=1)
    async def work(n: int) -> int:
        begun.append(n)
        await goes_on.wait()
        return n

    first = await app.enqueue(work, 1)
    async with world.worker(app) as worker:
        await eventually(lambda: begun)
        stopping = asyncio.create_task(worker.stop())
        await world.takes_no_more(worker)
        second = await app.enqueue(work, 2)
        goes_on.set()
        await stopping
    assert (await first.status(), begun) == ("completed", [1])
    assert (await second.status()).live, (
        "a cluster may have handed it over with the last poll: then it waits for a lease"
    )
    async with world.worker(app):
        assert await second.result(timeout="60s") == 2
    assert begun == [1, 2]


async def test_after_the_grace_a_task_goes_to_another_worker_and_the_attempt_does_not_count(world: World) -> None:
    one, two, seen = world.app(), world.app(), []
    started = asyncio.Event()
    for app in (one, two):

        @app.task(retry=1)
        async def work() -> str:
            seen.append(semel.current().attempt)
            if len(seen) == 1:
                started.set()
                await asyncio.Event().wait()
            return "finished"

    handle = await one.enqueue(work)
    async with world.worker(one, grace="20ms"):
        await started.wait()
    execution = await handle.describe()
    assert (execution.status, execution.attempt, execution.worker) == ("pending", 0, None)
    async with world.worker(two):
        assert await handle.result(timeout="60s") == "finished"
    assert seen == [1, 1]
    assert (await handle.describe()).attempt == 1


async def test_a_sync_task_that_does_not_stop_is_given_back_and_its_late_result_is_dropped(world: World) -> None:
    one, two, started, goes_on = world.app(), world.app(), threading.Event(), threading.Event()
    runs: list[int] = []
    for app in (one, two):

        @app.task(retry=1)
        def work() -> str:
            runs.append(1)
            if len(runs) == 1:
                started.set()
                goes_on.wait(60)
                return "late"
            return "in time"

    handle = await one.enqueue(work)
    async with world.worker(one, grace="20ms"):
        await eventually(started.is_set)
    async with world.worker(two):
        assert await handle.result(timeout="60s") == "in time"
    goes_on.set()
    assert await handle.result(timeout="60s") == "in time"


async def test_a_task_that_does_not_heed_it_is_given_back_all_the_same(world: World) -> None:
    one, two, seen, goes_on = world.app(), world.app(), [], asyncio.Event()
    started = asyncio.Event()
    for app in (one, two):

        @app.task(retry=1)
        async def work() -> str:
            seen.append(1)
            if len(seen) > 1:
                return "in time"
            started.set()
            while not goes_on.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await goes_on.wait()
            return "late"

    handle = await one.enqueue(work)
    async with world.worker(one, grace="20ms"):
        await started.wait()
    async with world.worker(two):
        assert await handle.result(timeout="60s") == "in time"
    goes_on.set()
    assert await handle.result(timeout="60s") == "in time"


async def test_no_slot_is_decided_while_a_worker_stops(world: World) -> None:
    """Nobody would run it, and the slots after it would be skipped since it waits."""
    shop, started, goes_on = Shop(world), asyncio.Event(), asyncio.Event()

    @shop.app.task
    async def work() -> None:
        started.set()
        await goes_on.wait()

    await shop.put(misfire="catchup")
    await shop.app.enqueue(work)
    async with world.worker(shop.app, grace="1h") as worker:
        await started.wait()
        stopping = asyncio.create_task(worker.stop())
        await eventually(lambda: not worker.chores.alive)
        await world.takes_no_more(worker)
        await world.advance("3h30m")
        await asyncio.sleep(world.a_moment)
        cursor = (await shop.app.schedules.get("daily")).cursor
        goes_on.set()
        await stopping
    assert cursor < shop.slot(0)
    assert (await shop.app.schedules.runs("daily"), await shop.skipped()) == ([], [])
