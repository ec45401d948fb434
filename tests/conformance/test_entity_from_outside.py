"""An entity can be cancelled and terminated, listed and explained; cleaning leaves the living alone."""

import asyncio
from dataclasses import field

import pytest

import semel
from semel import Status
from tests.world import World, ended, eventually, naps


class Cart:
    items: list[str] = field(default_factory=list)

    @semel.handler
    async def add(self, ctx: semel.EntityContext, item: str) -> list[str]:
        self.items.append(item)
        return self.items

    @semel.handler
    async def nap(self, ctx: semel.EntityContext) -> None:
        await ctx.sleep("1h")

    @semel.handler
    async def pay(self, ctx: semel.EntityContext) -> list[str]:
        ctx.end()
        return self.items


async def handle_of(app: semel.App, cart: semel.Ref[Cart]) -> semel.Handle[None]:
    handle = await app.find(cart.key, kind="entity")
    assert handle is not None
    return handle


@pytest.mark.parametrize("way", ["cancel", "terminate"])
@pytest.mark.parametrize("cached", [0, 100])
async def test_one_that_is_ended_from_outside_begins_anew(world: World, way: str, cached: int) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app, cached_workflows=cached):
        await cart.ask("add", "tea", dedup_key="tea", timeout="60s")
        first = await handle_of(app, cart)
        await (first.cancel() if way == "cancel" else first.terminate("enough"))
        assert await ended(first) is Status.CANCELLED
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]
        assert await cart.ask("add", "tea", dedup_key="tea", timeout="60s") == ["tea"]  # that was counted already
        second = await handle_of(app, cart)
        assert first.id != second.id
        assert await first.status() is Status.CANCELLED


@pytest.mark.parametrize("way", ["cancel", "terminate"])
async def test_in_the_middle_of_a_message(world: World, way: str) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        asked = asyncio.create_task(cart.ask("nap", dedup_key="nap", timeout="60s"))
        handle = await naps(await eventually(lambda: app.find(cart.key, kind="entity")))
        await (handle.cancel() if way == "cancel" else handle.terminate("enough"))
        with pytest.raises(semel.ExecutionCancelled):
            await asked
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]


async def test_it_cannot_be_redriven_since_a_message_begins_it_anew(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", dedup_key="tea", timeout="60s")
        first = await handle_of(app, cart)
        await first.terminate("enough")
        assert await ended(first) is Status.CANCELLED
        with pytest.raises(semel.NotRedrivable, match="'Cart/c' is an entity: its next message begins a new one"):
            await app.redrive(first.id)
        assert await cart.ask("add", "tea", dedup_key="tea", timeout="60s") == ["tea"]
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]


async def test_signals_are_refused_since_nothing_would_check_them(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", timeout="60s")
        with pytest.raises(semel.InvalidValue, match="is an entity, which takes messages"):
            await (await handle_of(app, cart)).signal("add", {"item": 5})
        assert await cart.ask("add", "milk", timeout="60s") == ["tea", "milk"]


async def test_one_that_nobody_has_run_yet(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    await cart.send("add", "tea")
    assert await (await handle_of(app, cart)).cancel() is Status.CANCELLED
    async with world.worker(app):
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]


@pytest.mark.journal("what is past its retention is the cluster's to forget")
async def test_cleaning_leaves_the_living_alone_and_takes_all_of_the_dead(world: World) -> None:
    app = world.app()
    app.entity(retention="1d", window="30d")(Cart)
    old, dead = app.entity(Cart, "old"), app.entity(Cart, "dead")
    async with world.worker(app):
        await old.ask("add", "tea", dedup_key="k", timeout="60s")
        await dead.ask("add", "tea", dedup_key="k", timeout="60s")
        await dead.ask("pay", dedup_key="pay", timeout="60s")
        gone = await handle_of(app, dead)
        await world.advance("20d")
        await world.clean(app)
        assert await old.ask("add", "tea", dedup_key="k", timeout="60s") == ["tea"]
        assert await world.sql("select count(*) from semel_seen where execution = '" + gone.id + "'") == [(2,)]
        await world.advance("20d")
        await world.clean(app)
        assert await world.sql("select count(*) from semel_seen where execution = '" + gone.id + "'") == [(0,)]
        assert await app.find(dead.key, kind="entity") is None
        assert await dead.ask("add", "milk", timeout="60s") == ["milk"]


async def test_it_is_listed_and_explained(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", timeout="60s")
        await world.listed()
        (listed,) = await app.list(name="Cart")
        assert (listed.kind, listed.key, listed.status) == ("entity", "Cart/c", Status.WAITING)
        text = str(await app.explain(cart.key, kind="entity"))
        assert "Key 'Cart/c' was admitted once." in text
        assert ": waiting." in text
