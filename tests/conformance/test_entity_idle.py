"""`@semel.idle` runs when no message came for so long: through restarts, at once after a long absence, and again."""

from dataclasses import field

import pytest

import semel
from tests.world import World, eventually


class Cart:
    items: list[str] = field(default_factory=list)
    reminders: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, item: str) -> int:
        self.items.append(item)
        return self.reminders

    @semel.idle("10h")
    async def remind(self, ctx: semel.EntityContext) -> None:
        self.reminders += 1
        if self.reminders == 3:
            ctx.end()
        if "trouble" in self.items:
            TROUBLE.append(self.reminders)
            raise ValueError("cannot remind")


TROUBLE: list[int] = []
"""Seen by the test, since a handler that raises leaves nothing else behind."""


async def reminders(cart: semel.Ref[Cart]) -> int:
    return (await cart.state()).reminders


async def is_gone(cart: semel.Ref[Cart]) -> bool:
    try:
        await cart.state()
    except semel.NotFound:
        return True
    return False


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_message_puts_it_off_and_a_duplicate_does_not(world: World, cached: int) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app, cached_workflows=cached):
        await cart.ask("add", "tea", dedup_key="k", timeout="60s")
        await world.advance("9h")
        await cart.ask("add", "milk", timeout="60s")
        await world.advance("9h")
        assert await cart.ask("add", "tea", dedup_key="k", timeout="60s") == 0
        assert await reminders(cart) == 0
        await world.advance("61m")
        await eventually(lambda: reminders(cart))
        assert (await cart.state()).items == ["tea", "milk"]


@pytest.mark.parametrize("cached", [0, 100])
async def test_it_comes_again_after_another_period_and_may_end_it(world: World, cached: int) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app, cached_workflows=cached):
        await cart.ask("add", "tea", timeout="60s")
        await world.advance("10h")
        await eventually(lambda: has(cart, 1))
        await world.advance("9h")
        assert await reminders(cart) == 1
        await world.advance("1h")
        await eventually(lambda: has(cart, 2))
        await world.advance("10h")
        await eventually(lambda: is_gone(cart))
        handle = await app.find(cart.key, kind="entity")
        assert handle is not None
        assert await handle.status() == "completed"
        assert await cart.ask("add", "milk", timeout="60s") == 0
        assert (await cart.state()).items == ["milk"]


async def has(cart: semel.Ref[Cart], n: int) -> bool:
    return await reminders(cart) == n


async def test_the_time_left_is_right_after_a_restart(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", timeout="60s")
    await world.advance("4h")
    async with world.worker(app):
        await world.advance("5h")
        await cart.ask("add", "tea", dedup_key=None, timeout="60s")
    await world.advance("9h")
    async with world.worker(app):
        assert await reminders(cart) == 0
        await world.advance("61m")
        await eventually(lambda: reminders(cart))


async def test_time_that_passed_while_nobody_was_there_counts(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", timeout="60s")
    await world.advance("15h")
    await cart.send("add", "milk")  # came after it was due
    async with world.worker(app):
        assert await cart.ask("add", "bread", timeout="60s") == 1
    assert (await cart.state()).items == ["tea", "milk", "bread"]


async def test_one_that_raises_changes_nothing_and_comes_again(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "trouble", timeout="60s")
        TROUBLE.clear()
        await world.advance("11h")
        await eventually(lambda: TROUBLE)
        assert await reminders(cart) == 0
        assert await cart.ask("add", "tea", timeout="60s") == 0
        await world.advance("11h")
        await eventually(lambda: len(TROUBLE) >= 2)
