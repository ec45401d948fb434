"""Calls that share a concurrency key run one at a time; keys take turns."""

import asyncio
from collections import Counter

import pytest

import semel
from tests.world import World, eventually


class Shop:
    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.together = 0
        self.order: list[str] = []

    def define(self, app: semel.App) -> semel.Task[[str, int], None]:
        @app.task(concurrency_key="customer:{customer}")
        async def bill(customer: str, n: int) -> None:
            self.now[customer] += 1
            self.most[customer] = max(self.most[customer], self.now[customer])
            self.together = max(self.together, sum(self.now.values()))
            self.order.append(f"{customer}{n}")
            await asyncio.sleep(0.002)
            self.now[customer] -= 1

        return bill


@pytest.mark.needs("limits")
async def test_one_at_a_time_per_key_over_all_workers(world: World) -> None:
    shop, one, two = Shop(), world.app(), world.app()
    bill, _ = shop.define(one), shop.define(two)
    handles = await one.enqueue_many(bill.call(customer, n) for n in range(5) for customer in "abc")
    async with world.worker(one), world.worker(two):
        for handle in handles:
            await handle.result(timeout="60s")
    assert shop.most == {"a": 1, "b": 1, "c": 1}
    assert shop.together > 1
    for customer in "abc":
        mine = [entry for entry in shop.order if entry.startswith(customer)]
        assert mine == [f"{customer}{n}" for n in range(5)]


@pytest.mark.needs("limits")
async def test_keys_take_turns(world: World) -> None:
    shop, app = Shop(), world.app()
    bill = shop.define(app)
    many = await app.enqueue_many(bill.call("a", n) for n in range(20))
    few = await app.enqueue_many(bill.call(customer, 0) for customer in "bc")
    async with world.worker(app, concurrency=1):
        for handle in (*few, *many):
            await handle.result(timeout="60s")
    assert set(shop.order[:3]) == {"a0", "b0", "c0"}


@pytest.mark.needs("limits")
async def test_a_key_may_be_a_function(world: World) -> None:
    app = world.app()

    @app.task(concurrency_key=lambda order, n: f"o:{order['id']}")
    async def work(order: dict[str, str], n: int = 0) -> str:
        return order["id"]

    async with world.worker(app):
        assert await (await app.enqueue(work, {"id": "x"})).result(timeout="60s") == "x"
    assert await world.sql("select concurrency_key from semel_execution") == [("o:x",)]


@pytest.mark.needs("limits")
async def test_a_key_of_a_dead_worker_is_free_again(world: World) -> None:
    app, other, goes_on, ran = world.app(), world.app(), asyncio.Event(), []
    for each in (app, other):

        @each.task(concurrency_key="k")
        async def work() -> None:
            ran.append(1)
            await goes_on.wait()

    await app.enqueue_many([work.call()] * 2)
    async with world.worker(app, grace=0) as dead:
        await eventually(lambda: ran)
        await world.cut_off(dead)
        async with world.worker(other):
            goes_on.set()
            await world.advance("1m")
            await eventually(lambda: both_are_done(app))


async def both_are_done(app: semel.App) -> bool:
    return len(await app.list(status="completed")) == 2


def test_a_template_must_fit_the_parameters() -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    with pytest.raises(semel.DefinitionError, match="does not fit the parameters"):

        @app.task(concurrency_key="{nobody}")
        async def work(customer: str) -> None: ...


@pytest.mark.parametrize("key", ["", "a\nb", "x" * 256, 5])
async def test_a_bad_key_is_refused_at_the_door(sqlite_world: World, key: object) -> None:
    app = sqlite_world.app()

    @app.task(concurrency_key=lambda: key)
    async def work() -> None: ...

    await app.list()
    with pytest.raises(semel.InvalidValue, match="concurrency_key gave"):
        await app.enqueue(work)
    assert await sqlite_world.count() == 0
