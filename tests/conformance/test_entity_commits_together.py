"""State, keys and effects of a message are there together, or not at all; history does not grow with messages."""

import asyncio
import os
from typing import Any

import pytest

import semel
from semel.testing import Fault, Mode
from tests.world import World, eventually

pytestmark = pytest.mark.slow


def register(app: semel.App, ran: list[str]) -> Any:
    @app.task
    async def mail(text: str) -> str:
        ran.append(text)
        return text

    @app.workflow
    async def follow_up(ctx: semel.Context, text: str) -> str:
        return await ctx.execute_task(mail, text)

    @app.entity
    class Customer:
        points: int = 0

        @semel.handler
        async def buy(self, ctx: semel.EntityContext, item: str, *, fails: bool = False) -> int:
            self.points += 1
            await ctx.enqueue(mail, f"thanks for {item}")
            ctx.publish("last", item)
            ctx.search_attributes["item"] = item
            if fails:
                raise RuntimeError("sold out")
            return self.points

        @semel.handler
        async def buy_and_follow(self, ctx: semel.EntityContext, item: str) -> str:
            self.points += 1
            child = await ctx.start_workflow(follow_up, f"how is {item}?", workflow_id=f"follow-{item}")
            ctx.search_attributes["item"] = item
            if item == "nothing":
                raise RuntimeError("that is none")
            return child.key

        @semel.handler
        async def key(self, ctx: semel.EntityContext) -> list[str]:
            return [ctx.effect_key("charge"), ctx.effect_key("charge"), ctx.entity_id, str(ctx.now().tzinfo)]

    return Customer


async def test_what_a_message_asks_for_comes_with_its_state(world: World) -> None:
    app = world.app()
    ran: list[str] = []
    customer = app.entity(register(app, ran), "c")
    async with world.worker(app):
        assert await customer.ask("buy", "tea", timeout="60s") == 1
        handle = await app.find(customer.key, kind="entity")
        assert handle is not None
        assert (await handle.published("last"), await handle.attributes()) == ("tea", {"item": "tea"})
        await eventually(lambda: ran == ["thanks for tea"])
        assert await customer.ask("buy-and-follow", "milk", timeout="60s") == "follow-milk"
        child = await app.find("follow-milk", kind="workflow")
        assert child is not None
        assert await child.result(timeout="60s") == "how is milk?"
        assert await handle.attributes() == {"item": "milk"}
        with pytest.raises(semel.ExecutionFailed, match="sold out"):
            await customer.ask("buy", "gold", fails=True, timeout="60s")
        assert (await handle.published("last"), await handle.attributes()) == ("tea", {"item": "milk"})
        with pytest.raises(semel.ExecutionFailed, match="that is none"):
            await customer.ask("buy-and-follow", "nothing", timeout="60s")
        assert await handle.attributes() == {"item": "milk"}
        assert (await customer.state()).points == 2
    assert "thanks for gold" not in ran


@pytest.mark.journal("fails at each SQL statement of a commit")
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.ERROR])
async def test_a_commit_that_fails_is_done_once(world: World, mode: Mode) -> None:
    """At whichever statement, and whether or not it was executed before its reply was lost."""
    app = world.app()
    ran: list[str] = []
    customer = app.entity(register(app, ran), "c")
    async with world.worker(app) as worker:
        await customer.ask("buy", "first", timeout="60s")
        for at in range(1, 14):
            worker.store.tap = Fault(at, mode)
            asked = asyncio.create_task(customer.ask("buy", f"no {at}", dedup_key=f"k{at}", timeout="60s"))
            assert await asked == at + 1
            worker.store.tap = Fault()
            assert await customer.ask("buy", f"no {at}", dedup_key=f"k{at}", timeout="60s") == at + 1
        await eventually(lambda: len(ran) >= 14)
        assert (await customer.state()).points == 14
    assert sorted(set(ran)) == sorted(["thanks for first", *(f"thanks for no {at}" for at in range(1, 14))])


async def test_effect_keys_are_of_the_message(world: World) -> None:
    app = world.app()
    customer = app.entity(register(app, []), "c")
    async with world.worker(app, cached_workflows=0):
        first, again, id_, zone = await customer.ask("key", timeout="60s")
        assert (first, id_, zone) == (again, "c", "UTC")
        assert (await customer.ask("key", timeout="60s"))[0] != first


@pytest.mark.journal("looks at rows; on Temporal: tests/engines/temporal/test_entity_history_is_short.py")
@pytest.mark.parametrize("cached", [0, 100])
async def test_history_does_not_grow(world: World, cached: int) -> None:
    app = world.app()
    many = int(os.environ.get("SEMEL_MESSAGES", "600"))

    @app.task
    async def nothing() -> None: ...

    @app.entity(window="1h", max_keys=50)
    class Meter:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, wait: bool = False) -> int:
            self.total += 1
            if wait:
                await ctx.execute_task(nothing)
            return self.total

    meter = app.entity(Meter, "m")
    async with world.worker(app, cached_workflows=cached):
        for start in range(0, many, 100):
            await asyncio.gather(*(meter.send("add", n % 10 == 0, dedup_key=f"k{start + n}") for n in range(100)))
        assert await meter.ask("add", timeout="60s") == many + 1
        await world.advance("2m")
        assert await meter.ask("add", dedup_key="last", timeout="60s") == many + 2
        assert await world.count("semel_inbox") == 0
        assert await world.count("semel_journal") == 0
        assert await world.kept_keys() <= 60
        size = await world.sql("select length(snapshot) from semel_flow where name = 'Meter'")
        assert size[0][0] < 1000


@pytest.mark.journal("looks at rows; on Temporal: tests/engines/temporal/test_entity_history_is_short.py")
async def test_a_journal_is_cut_also_if_it_is_never_idle(world: World) -> None:
    app = world.app()
    longest = 0

    @app.task
    async def nothing() -> None: ...

    @app.entity
    class Meter:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext) -> int:
            self.total += 1
            await ctx.execute_task(nothing)
            return self.total

    meter = app.entity(Meter, "m")
    await asyncio.gather(*(meter.send("add") for _ in range(300)))
    async with world.worker(app):
        last = asyncio.create_task(meter.ask("add", timeout="60s"))
        while not last.done():
            longest = max(longest, await world.count("semel_journal"))
            await asyncio.wait([last], timeout=0.02)
        assert await last == 301
    assert 0 < longest <= 310
    assert await world.count("semel_journal") == 0
