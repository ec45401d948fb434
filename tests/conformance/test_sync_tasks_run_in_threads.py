"""Sync tasks run beside the loop, many at once, each with its own context."""

import asyncio
import threading

import semel
from tests.world import World


async def test_they_run_at_the_same_time_and_never_on_the_loop(world: World) -> None:
    app = world.app()
    together = threading.Barrier(5, timeout=60)

    @app.task
    def work() -> tuple[str, str]:
        together.wait()
        return threading.current_thread().name, semel.current().id

    handles = [await app.enqueue(work) for _ in range(5)]
    async with world.worker(app):
        results = [await handle.result(timeout="60s") for handle in handles]
    assert len({name for name, _ in results}) == 5
    assert threading.current_thread().name not in {name for name, _ in results}
    assert [id_ for _, id_ in results] == [handle.id for handle in handles]


async def test_a_sync_task_may_run_a_loop_of_its_own(world: World) -> None:
    app = world.app()

    @app.task
    def work() -> str:
        async def inner() -> str:
            return semel.effect_key("x")

        return asyncio.run(inner())

    async with world.worker(app):
        handle = await app.enqueue(work, task_id="k")
        assert await handle.result(timeout="60s") == f"semel1:{app.settings.namespace}:task:k:x"


async def test_no_more_threads_than_concurrency(world: World) -> None:
    app, lock, now, most = world.app(), threading.Lock(), [0], [0]

    @app.task
    def work() -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.005)
        with lock:
            now[0] -= 1

    handles = [await app.enqueue(work) for _ in range(12)]
    async with world.worker(app, concurrency=3):
        for handle in handles:
            await handle.result(timeout="60s")
    assert most[0] <= 3
