"""Queries read what is committed, and what cannot be asked or sent is refused where it is asked."""

import asyncio
from dataclasses import field
from typing import Any

import pytest

import semel
from tests.world import World, naps, waits


class Cart:
    items: list[str] = field(default_factory=list)

    @semel.handler
    async def add(self, ctx: semel.EntityContext, item: str, count: int = 1) -> int:
        self.items += [item] * count
        return len(self.items)

    @semel.handler("add-later")
    async def add_later(self, ctx: semel.EntityContext, item: str) -> int:
        self.items.append(item)
        await ctx.sleep("1h")
        return len(self.items)

    @semel.query
    def count(self, item: str = "") -> int:
        return sum(one == item for one in self.items) if item else len(self.items)

    @semel.query
    def spoil(self) -> None:
        self.items.clear()


class Likeness:
    @semel.handler
    async def add(self, ctx: semel.EntityContext, item: str) -> None: ...


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_message_that_is_under_way_is_not_seen(world: World, cached: int) -> None:
    app, other = world.app(), world.app()
    for one in (app, other):
        one.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app, cached_workflows=cached):
        await cart.ask("add", "tea", 2, timeout="60s")
        for item in ("milk", "bread"):
            await cart.send("add-later", item, dedup_key=item)
        asked, behind = (
            asyncio.create_task(cart.ask("add-later", item, dedup_key=item, timeout="60s"))
            for item in ("milk", "bread")
        )
        handle = await app.find(cart.key, kind="entity")
        assert handle is not None
        await waits(handle)
        assert await cart.query("count") == await other.entity(Cart, "c").query("count") == 2
        assert await world.advance_until(cart.ask("add", "salt", timeout="60s")) == 5
        assert (await asked, await behind) == (3, 4)
        assert await other.entity(Cart, "c").query("count", "tea") == 2


async def test_who_has_the_answer_sees_the_state_also_if_more_is_under_way(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        for item in ("tea", "milk"):
            await cart.send("add-later", item, dedup_key=item)
        first, second = (
            asyncio.create_task(cart.ask("add-later", item, dedup_key=item, timeout="60s")) for item in ("tea", "milk")
        )
        handle = await app.find(cart.key, kind="entity")
        assert handle is not None
        await naps(handle)
        await world.advance("61m")  # once: the second one sleeps from then on
        assert await first == 1
        assert not second.done()
        assert await cart.query("count") >= 1
        assert await world.advance_until(waiting(second)) == 2


async def waiting(task: asyncio.Task[Any]) -> Any:
    return await task


async def test_a_query_changes_nothing(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", timeout="60s")
        await cart.query("spoil")
        (await cart.state()).items.append("a copy")
        assert await cart.query("count") == 1


async def test_handlers_and_queries_can_be_given_as_methods(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.send(Cart.add, "tea", 2, dedup_key="tea")
        assert await cart.ask(Cart.add, "tea", 2, dedup_key="tea", timeout="60s") == 2
        assert await cart.ask("add", "tea", count=2, dedup_key="tea", timeout="60s") == 2
        assert await cart.query(Cart.count, "tea") == 2


async def test_what_is_not_there(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    with pytest.raises(semel.NotFound, match="there is no entity 'Cart/c'"):
        await cart.query("count")
    with pytest.raises(semel.NotFound, match=r"entity 'Cart' has no handler 'remove'. There are: add, add-later"):
        await cart.send("remove")
    with pytest.raises(semel.NotFound, match="no handler 'count'"):
        await cart.ask("count")
    with pytest.raises(semel.NotFound, match=r"entity 'Cart' has no query 'add'. There are: count, spoil"):
        await cart.query("add")

    with pytest.raises(semel.NotFound, match=r"has no handler Cart.count. There are: add, add-later"):
        await cart.ask(Cart.count)  # type: ignore[call-overload]
    with pytest.raises(semel.NotFound, match=r"has no handler .*Likeness.add. There are: add"):
        await cart.send(Likeness.add, "tea")  # type: ignore[call-overload]

    class Stranger: ...

    with pytest.raises(semel.NotFound, match="this app has no entity 'Stranger'"):
        app.entity(Stranger, "s")
    assert await world.count("semel_execution") == 0


async def test_arguments_are_checked_at_the_door(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    with pytest.raises(TypeError):
        await cart.send("add")
    with pytest.raises(TypeError):
        await cart.send("add", "tea", colour="green")
    with pytest.raises(semel.NotEncodable):
        await cart.send("add", "tea", "many")
    with pytest.raises(semel.NotEncodable):
        await cart.ask("add", object())
    with pytest.raises(semel.PayloadTooLarge):
        await cart.send("add", "x" * (1 << 21))
    for bad in ("", " k", "k\n", 5, "x" * 256):
        with pytest.raises(semel.InvalidKey):
            await cart.send("add", "tea", dedup_key=bad)  # type: ignore[arg-type]
        with pytest.raises(semel.InvalidKey):
            app.entity(Cart, bad)  # type: ignore[arg-type]
    with pytest.raises(semel.InvalidKey):
        app.entity(Cart, "x" * 252)  # with the name of the class it would be too long
    with pytest.raises(semel.NotEncodable):
        await cart.query("count", 5)
    with pytest.raises(semel.InvalidValue):
        await cart.ask("add", "tea", timeout="soon")
    assert await app.list() == []


async def test_ids_may_look_like_anything(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    async with world.worker(app):
        for n, id_ in enumerate(["a/b", "a", "ä:ö ü", "x" * 250, "%", "'; drop table semel_flow --"], 1):
            assert await app.entity(Cart, id_).ask("add", "tea", n, timeout="60s") == n
            assert repr(app.entity(Cart, id_)) == f"<Ref Cart/{id_}>"


async def test_signals_and_new_runs_are_not_for_entities(world: World) -> None:
    app = world.app()

    @app.entity
    class Odd:
        n: int = 0

        @semel.handler
        async def wait(self, ctx: semel.EntityContext) -> None:
            await ctx.wait_signal("go")

        @semel.handler
        async def again(self, ctx: semel.EntityContext) -> None:
            ctx.continue_as_new()

    async with world.worker(app):
        for name in ("wait", "again"):
            with pytest.raises(semel.ExecutionFailed, match="in an entity"):
                await app.entity(Odd, "o").ask(name, timeout="60s")
