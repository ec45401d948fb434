"""Everybody who waits for a result wakes up, wherever they wait."""

import asyncio
import time

import semel
from tests.world import SOON, World


async def test_all_waiters_of_several_apps(world: World) -> None:
    apps, goes_on = [world.app() for _ in range(3)], asyncio.Event()
    for app in apps:

        @app.task
        async def work() -> str:
            await goes_on.wait()
            return "done"

    handles: list[semel.Handle[str]] = [await app.enqueue(work, task_id="k") for app in apps for _ in range(2)]
    waiters = [asyncio.create_task(handle.result(timeout="60s")) for handle in handles]
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

    async with world.worker(serves, lease="10m"):  # its heart would look only after minutes
        fastest = SOON
        for n in range(20):
            began = time.monotonic()
            assert await (await asks.enqueue(echo, n)).result(timeout="60s") == n
            fastest = min(fastest, time.monotonic() - began)
        assert fastest < 0.9, "as slow as polling"
