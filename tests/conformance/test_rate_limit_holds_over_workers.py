"""A queue's rate limit holds over all workers together."""

import pytest

import semel
from tests.world import World, eventually


def define(app: semel.App, ran: list[int]) -> semel.Task[[int], None]:
    app.configure_queue("slow", rate_limit="5/hour")

    @app.task(queue="slow")
    async def work(n: int) -> None:
        ran.append(n)

    @app.task
    async def free() -> None: ...

    return work


async def settled(app: semel.App) -> None:
    """Let every worker have had its turn: something free went through after the last change."""
    for _ in range(3):
        await (await app.enqueue(app.tasks["free"])).result(timeout="60s")


@pytest.mark.needs("limits")
async def test_two_workers_share_one_bucket(world: World) -> None:
    ran: list[int] = []
    one, two = world.app(), world.app()
    work, _ = define(one, ran), define(two, ran)
    await one.enqueue_many(work.call(n) for n in range(30))
    async with world.worker(one), world.worker(two):
        await eventually(lambda: len(ran) >= 5)
        await settled(one)
        assert len(ran) == 5
        await world.advance("12m")
        await eventually(lambda: len(ran) >= 6)
        await settled(two)
        assert len(ran) == 6
        await world.advance("10h")
        await eventually(lambda: len(ran) >= 11)
        await settled(one)
        assert len(ran) == 11
    assert sorted(ran) == list(range(11))


@pytest.mark.needs("limits")
async def test_a_clock_that_goes_back_gives_nothing_away(world: World) -> None:
    ran: list[int] = []
    app = world.app()
    work = define(app, ran)
    await app.enqueue_many(work.call(n) for n in range(30))
    async with world.worker(app):
        await eventually(lambda: len(ran) >= 5)
        await world.turn_back("1d")
        await settled(app)
        await world.advance("1d")
        await settled(app)
        assert len(ran) == 5


@pytest.mark.needs("limits")
async def test_other_queues_are_not_held_up(world: World) -> None:
    ran: list[int] = []
    app = world.app()
    work = define(app, ran)
    await app.enqueue_many(work.call(n) for n in range(10))
    async with world.worker(app):
        handles = await app.enqueue_many(work.call(n) for n in range(100, 150))
        free = await app.enqueue_many([app.tasks["free"].call()] * 20)
        for handle in free:
            await handle.result(timeout="60s")
        assert await handles[-1].status() == "pending"
