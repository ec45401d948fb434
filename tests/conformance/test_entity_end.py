"""`ctx.end()`: a later message begins anew, and none is lost on the way, wherever it falls."""

import asyncio
from dataclasses import field
from functools import partial
from typing import Any

import pytest

import semel
from semel.engines.journal.worker import JournalWorker
from tests.world import World

pytestmark = pytest.mark.slow


class Cart:
    items: list[str] = field(default_factory=list)

    @semel.handler
    async def add(self, ctx: semel.EntityContext, item: str) -> list[str]:
        self.items.append(item)
        return self.items

    @semel.handler
    async def pay(self, ctx: semel.EntityContext, wait: bool = False) -> list[str]:
        ctx.end()
        if wait:
            await ctx.sleep("1h")
        return self.items

    @semel.handler
    async def pay_badly(self, ctx: semel.EntityContext) -> None:
        ctx.end()
        raise ValueError("no money")


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_later_message_begins_anew(world: World, cached: int) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app, cached_workflows=cached):
        await cart.ask("add", "tea", timeout="60s")
        assert await cart.ask("pay", timeout="60s") == ["tea"]
        with pytest.raises(semel.NotFound, match="there is no entity 'Cart/c'"):
            await cart.state()
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]
        explained = await app.explain(cart.key, kind="entity")
        assert [str(e.status) for e in explained.executions] == ["waiting", "completed"]
        assert explained.executions[0].previous_id == explained.executions[1].id


async def test_a_handler_that_raises_does_not_end_it(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", timeout="60s")
        with pytest.raises(semel.ExecutionFailed, match="no money"):
            await cart.ask("pay-badly", timeout="60s")
        assert await cart.ask("add", "milk", timeout="60s") == ["tea", "milk"]


@pytest.mark.parametrize("cached", [0, 100])
async def test_keys_and_answers_outlive_the_end(world: World, cached: int) -> None:
    app = world.app()
    app.entity(window="2h")(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app, cached_workflows=cached):
        await cart.ask("add", "tea", dedup_key="tea", timeout="60s")
        for _ in range(3):
            assert await cart.ask("pay", dedup_key="pay", timeout="60s") == ["tea"]
        assert await cart.ask("add", "tea", dedup_key="tea", timeout="60s") == ["tea"]
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]
        await world.advance("3h")
        assert await cart.ask("add", "tea", dedup_key="tea", timeout="60s") == ["milk", "tea"]


@pytest.mark.parametrize("retention", ["0", "1m"])
async def test_keys_outlive_the_end_for_their_window_however_short_retention_is(world: World, retention: str) -> None:
    app = world.app()
    app.entity(window="6h", retention=retention)(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await cart.ask("add", "tea", dedup_key="tea", timeout="60s")
        await cart.ask("pay", timeout="60s")
        ended = await app.find(cart.key, kind="entity")
        await world.advance("3h")
        await world.clean(app)
        assert await cart.ask("add", "tea", dedup_key="tea", timeout="60s") == ["tea"]
        assert await cart.ask("add", "milk", timeout="60s") == ["milk"]
        assert ended is not None
        await world.advance("9h")
        await world.clean(app)
        with pytest.raises(semel.NotFound):
            await ended.describe()
        assert await cart.ask("add", "tea", dedup_key="tea", timeout="60s") == ["milk", "tea"]


async def test_what_comes_while_the_last_handler_waits_is_for_the_next_one(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    async with world.worker(app):
        await asyncio.gather(
            cart.send("add", "tea"), cart.send("pay", True), cart.send("add", "milk", dedup_key="m"),
            cart.send("add", "milk", dedup_key="m"), cart.send("pay", True), cart.send("add", "bread"),
        )  # fmt: skip
        assert await world.advance_until(cart.ask("add", "butter", timeout="60s")) == ["bread", "butter"]
    assert await world.count("semel_execution") == 1


async def test_what_comes_in_one_go_with_the_end(world: World) -> None:
    app = world.app()
    app.entity(Cart)
    cart = app.entity(Cart, "c")
    for _ in range(5):
        await asyncio.gather(cart.send("add", "tea"), cart.send("pay"), cart.send("add", "milk"))
    async with world.worker(app):
        assert await cart.ask("add", "bread", timeout="60s") == ["milk", "bread"]


STATEMENTS = ("held", "record", "consume", "see", "lock_flows", "mail", "settle", "children_of", "close_flows")


@pytest.mark.journal("at each SQL statement of a commit")
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_what_comes_while_the_end_is_written_is_not_lost(world: World, moment: str) -> None:
    """From another process, before or after each statement of the transaction that ends it."""
    app, other = world.app(), world.app()
    for one in (app, other):
        one.entity(Cart)
    loop = asyncio.get_running_loop()
    async with world.worker(app) as worker:
        for statement in STATEMENTS:
            cart, elsewhere = app.entity(Cart, statement), other.entity(Cart, statement)
            await cart.ask("add", "tea", timeout="60s")
            await elsewhere.ask("add", "salt", timeout="60s")
            sent: list[asyncio.Future[None]] = []
            at = Moment(worker, statement, moment, partial(loop.call_soon_threadsafe, send, elsewhere, sent))
            assert await cart.ask("pay", timeout="60s") == ["tea", "salt"]
            at.off()
            assert at.hit, statement
            await asyncio.gather(*sent)
            assert await cart.ask("add", "bread", timeout="60s") == ["milk", "bread"], statement


def send(cart: semel.Ref[Cart], sent: list[asyncio.Future[None]]) -> None:
    sent.append(asyncio.ensure_future(cart.send("add", "milk")))


class Moment:
    """Does something once at a statement of the worker, and gives it some time."""

    def __init__(self, worker: JournalWorker, statement: str, moment: str, do: Any) -> None:
        self._store, self._statement, self._moment, self._do = worker.store, statement, moment, do
        self.hit = False
        self._before, worker.store.tap = worker.store.tap, self

    def off(self) -> None:
        self._store.tap = self._before

    def before(self, statement: str) -> None:
        self._at(statement, "before")

    def after(self, statement: str) -> None:
        self._at(statement, "after")

    def _at(self, statement: str, moment: str) -> None:
        if (statement, moment) == (self._statement, self._moment) and not self.hit:
            self.hit = True
            self._do()


@pytest.mark.parametrize("cached", [0, 100])
async def test_every_item_is_paid_for_once_however_the_ends_fall(world: World, cached: int) -> None:
    app, other = world.app(), world.app()
    for one in (app, other):
        one.entity(Cart)
    async with world.worker(app, cached_workflows=cached), world.worker(other, cached_workflows=cached):
        paid: list[str] = []

        async def shop(one: semel.App, name: str) -> None:
            cart = one.entity(Cart, "c")
            for n in range(15):
                await cart.send("add", f"{name}{n}", dedup_key=f"{name}{n}")
                paid.extend(await cart.ask("pay", timeout="60s"))

        await asyncio.gather(shop(app, "a"), shop(app, "b"), shop(other, "c"), shop(other, "d"))
        paid += await app.entity(Cart, "c").ask("pay", timeout="60s")
    assert sorted(paid) == sorted(f"{name}{n}" for name in "abcd" for n in range(15))
