"""Queues of one priority share the workers that serve them: a long older queue starves no newer one."""

from __future__ import annotations

from tests.world import World

MANY = 200


async def test_a_newer_queue_is_served_while_an_older_one_is_full(world: World) -> None:
    app = world.app()
    ran: list[str] = []

    @app.task(queue="older")
    async def bulk(number: int) -> None:
        ran.append("bulk")

    @app.task(queue="newer")
    async def urgent() -> None:
        ran.append("urgent")

    await app.enqueue(bulk, 0)  # the queue is there before the other one
    first = await app.enqueue(urgent)
    async with world.worker(app, concurrency=10):
        await first.result(timeout="60s")
    ran.clear()
    handles = await app.enqueue_many([bulk.call(n) for n in range(MANY)])
    last = await app.enqueue(urgent)
    async with world.worker(app, concurrency=10):
        await last.result(timeout="60s")
        for handle in handles:
            await handle.result(timeout="60s")
    assert ran.index("urgent") < MANY / 2
    assert len(ran) == MANY + 1
