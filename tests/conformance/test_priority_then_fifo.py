"""Higher priority first, then first come, first served."""

import pytest

from tests.world import World


@pytest.mark.needs("in_order")
async def test_order_of_execution(world: World) -> None:
    app, ran = world.app(), []

    @app.task
    async def work(name: str) -> None:
        ran.append(name)

    @app.task(priority=5)
    async def urgent(name: str) -> None:
        ran.append(name)

    for at, (name, priority) in enumerate([("a", 0), ("b", -1), ("c", 10), ("d", 0), ("e", 10)]):
        await app.enqueue(work, f"{name}{at}", priority=priority)
    await app.enqueue(urgent, "u5")
    last = await app.enqueue(work, "z6", priority=-5)
    async with world.worker(app, concurrency=1):
        await last.result(timeout="60s")
    assert ran == ["c2", "e4", "u5", "a0", "d3", "b1", "z6"]


@pytest.mark.needs("in_order")
async def test_a_batch_keeps_its_order(world: World) -> None:
    app, ran = world.app(), []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    handles = await app.enqueue_many(work.call(n) for n in range(50))
    async with world.worker(app, concurrency=1):
        await handles[-1].result(timeout="60s")
    assert ran == list(range(50))
