"""Everybody who waits for a result wakes up, wherever they wait."""

import asyncio
import time

import semel
from tests.world import World


async def test_all_waiters_of_several_apps(world: World) -> None:
    apps, goes_on = [world.app() for _ in range(3)], asyncio.Event()
    for app in apps:

        @app.task
        async def work() -> str:
            await goes_on.wait()
            return "done"

    handles: list[semel.Handle[str]] = [await app.enqueue(work, task_id="k") for app in apps for _ in range(2)]
    waiters = [asyncio.create_task(handle.result(timeout="20s")) for handle in handles]
    async with world.worker(apps[0]):
        await asyncio.sleep(0.05)
        assert not any(waiter.done() for waiter in waiters)
        goes_on.set()
        assert await asyncio.gather(*waiters) == ["done"] * 6


async def test_work_and_results_travel_between_apps_at_once(world: World) -> None:
    asks, serves = world.app(), world.app()
    for app in (asks, serves):

        @app.task
        async def echo(n: int) -> int:
            return n

    async with world.worker(serves):
        assert await (await asks.enqueue(echo, -1)).result(timeout="20s") == -1
        began = time.monotonic()
        for n in range(5):
            assert await (await asks.enqueue(echo, n)).result(timeout="20s") == n
    assert time.monotonic() - began < 4, "as slow as polling"
