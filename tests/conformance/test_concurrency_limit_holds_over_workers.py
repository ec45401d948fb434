"""No more than `concurrency` tasks of a queue run at once, over all workers together."""

import asyncio

import pytest

import semel
from tests.world import World, eventually


class Counter:
    def __init__(self) -> None:
        self.now = self.most = self.done = 0
        self.goes_on = asyncio.Event()

    def define(self, app: semel.App) -> semel.Task[[], None]:
        app.configure_queue("narrow", concurrency=3)

        @app.task(queue="narrow")
        async def work() -> None:
            self.now += 1
            self.most = max(self.most, self.now)
            await self.goes_on.wait()
            await asyncio.sleep(0.001)
            self.now -= 1
            self.done += 1

        return work


@pytest.mark.needs("limits")
async def test_two_workers_share_the_places(world: World) -> None:
    one, two, counter = world.app(), world.app(), Counter()
    work, _ = counter.define(one), counter.define(two)
    handles = await one.enqueue_many([work.call()] * 12)
    async with world.worker(one), world.worker(two):
        await eventually(lambda: counter.now == 3)
        assert sum(queue.running for queue in await one.queues()) == 3
        counter.goes_on.set()
        for handle in handles:
            await handle.result(timeout="60s")
    assert (counter.most, counter.done) == (3, 12)


@pytest.mark.needs("limits")
async def test_places_of_a_dead_worker_return(world: World) -> None:
    one, two, counter = world.app(), world.app(), Counter()
    work, _ = counter.define(one), counter.define(two)
    await one.enqueue_many([work.call()] * 6)
    async with world.worker(one, grace=0) as dead:
        await eventually(lambda: counter.now == 3)
        await world.cut_off(dead)
        counter.now = 0
        async with world.worker(two):
            await world.advance("1m")
            await eventually(lambda: counter.now == 3)
            counter.goes_on.set()
            await eventually(lambda: all_done(two))


async def all_done(app: semel.App) -> bool:
    return len(await app.list(status="completed")) == 6
