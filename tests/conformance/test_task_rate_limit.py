"""A task may have a rate limit of its own, besides its queue's."""

import pytest

from tests.world import World, eventually


@pytest.mark.needs("limits")
async def test_only_that_task_is_limited(world: World) -> None:
    app, ran = world.app(), []

    @app.task(rate_limit="3/hour")
    async def slow(n: int) -> None:
        ran.append(n)

    @app.task
    async def fast() -> None: ...

    await app.enqueue_many(slow.call(n) for n in range(10))
    async with world.worker(app):
        await eventually(lambda: len(ran) >= 3)
        await (await app.enqueue(fast)).result(timeout="60s")
        assert ran == [0, 1, 2]
        await world.advance("20m")
        await eventually(lambda: len(ran) >= 4)
        await (await app.enqueue(fast)).result(timeout="60s")
        assert ran == [0, 1, 2, 3]


@pytest.mark.needs("limits")
async def test_the_tighter_of_two_limits_holds(world: World) -> None:
    app, ran = world.app(), []
    app.configure_queue("q", rate_limit="5/hour")

    @app.task(queue="q", rate_limit="2/hour")
    async def slow(n: int) -> None:
        ran.append(n)

    @app.task(queue="q")
    async def other(n: int) -> None:
        ran.append(n)

    await app.enqueue_many(slow.call(n) for n in range(5))
    async with world.worker(app):
        await eventually(lambda: len(ran) >= 2)
        await app.enqueue_many(other.call(n) for n in range(100, 110))
        await eventually(lambda: len(ran) >= 5)
        await app.queues()
        assert [len(ran), len([n for n in ran if n < 100])] == [5, 2]
