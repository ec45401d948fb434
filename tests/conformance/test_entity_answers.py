"""`ask` gives what the handler returned; a duplicate gets what the first one got, also if that was an error."""

import asyncio
from dataclasses import field

import pytest

import semel
from tests.world import Verbs, World, eventually, naps


class Till:
    coins: list[int] = field(default_factory=list)

    @semel.handler
    async def put(self, ctx: semel.EntityContext, coin: int) -> int:
        self.coins.append(coin)
        if coin < 0:
            raise ValueError(f"no coin: {coin}")
        return sum(self.coins)

    @semel.handler
    async def put_later(self, ctx: semel.EntityContext, coin: int) -> int:
        self.coins.append(coin)
        await ctx.sleep("1h")
        if coin < 0:
            raise ValueError(f"no coin: {coin}")
        return sum(self.coins)

    @semel.handler
    async def fill(self, ctx: semel.EntityContext) -> None:
        self.coins = "full"  # type: ignore[assignment]

    @semel.handler
    async def give_up(self, ctx: semel.EntityContext) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future


async def test_duplicates_get_the_first_answer(world: World) -> None:
    app, other = world.app(), world.app()
    for one in (app, other):
        one.entity(Till)
    async with world.worker(app):
        answers = await asyncio.gather(
            *(one.entity(Till, "t").ask("put", 5, dedup_key="k", timeout="60s") for one in (app, other) for _ in "abc")
        )
        assert answers == [5] * 6
        assert await app.entity(Till, "t").ask("put", 1, timeout="60s") == 6
        assert await other.entity(Till, "t").ask("put", 5, dedup_key="k", timeout="60s") == 5
        assert (await app.entity(Till, "t").state()).coins == [5, 1]


async def test_a_duplicate_of_one_that_is_under_way_waits_for_it(world: World) -> None:
    app = world.app()
    app.entity(Till)
    till = app.entity(Till, "t")
    async with world.worker(app):
        early = asyncio.create_task(till.ask("put-later", 5, dedup_key="k", timeout="60s"))
        assert await world.advance_until(till.ask("put-later", 5, dedup_key="k", timeout="60s")) == await early == 5
    assert (await till.state()).coins == [5]


@pytest.mark.parametrize("handler", ["put", "put-later"])
async def test_a_handler_that_raises_leaves_nothing_behind(world: World, handler: str) -> None:
    app = world.app()
    app.entity(Till)
    till = app.entity(Till, "t")
    async with world.worker(app):
        await till.ask("put", 1, timeout="60s")
        for _ in range(2):
            with pytest.raises(semel.ExecutionFailed) as caught:
                await world.advance_until(till.ask(handler, -1, dedup_key="bad", timeout="60s"))
            assert (caught.value.error_type, caught.value.error_message) == ("ValueError", "no coin: -1")
            assert "in put" in caught.value.traceback
        assert await till.ask("put", 2, timeout="60s") == 3


async def test_state_that_cannot_be_stored_fails_its_message_alone(world: World) -> None:
    app = world.app()
    app.entity(Till)
    till = app.entity(Till, "t")
    async with world.worker(app):
        await till.ask("put", 1, timeout="60s")
        with pytest.raises(semel.ExecutionFailed, match="does not fit its annotation"):
            await till.ask("fill", timeout="60s")
        with pytest.raises(semel.ExecutionFailed, match="CancelledError"):
            await till.ask("give-up", timeout="60s")
        assert await till.ask("put", 2, timeout="60s") == 3


async def test_nobody_answers_in_time(world: World) -> None:
    app = world.app()
    app.entity(Till)
    till = app.entity(Till, "t")
    with pytest.raises(semel.ResultPending, match="ask again with the same dedup_key"):
        await till.ask("put", 5, dedup_key="k", timeout="50ms")
    with pytest.raises(semel.ResultPending, match="asked again it would be another one: give a dedup_key"):
        await app.entity(Till, "other").ask("put", 5, timeout="50ms")
    async with world.worker(app):
        assert await till.ask("put", 5, dedup_key="k", timeout="60s") == 5


async def test_who_asks_one_that_is_ended_from_outside_hears_of_it(world: World) -> None:
    heard = Verbs()
    app = world.app(observer=heard)
    app.entity(Till)
    till = app.entity(Till, "t")
    async with world.worker(app):
        asked = [asyncio.create_task(till.ask("put-later", n, timeout="60s")) for n in range(2)]
        await eventually(lambda: heard.done.count("send") == 2)
        handle = await app.find(till.key, kind="entity")
        assert handle is not None
        await naps(handle)
        await handle.cancel()
        for one in asked:
            with pytest.raises(semel.ExecutionCancelled):
                await one
