"""A message makes the entity it is for, and they are handled one at a time, in the order they came."""

import asyncio
from dataclasses import dataclass, field

import semel
from tests.world import World


class Ledger:
    entries: list[int] = field(default_factory=list)
    inside: bool = False

    @semel.handler
    async def add(self, ctx: semel.EntityContext, n: int) -> int:
        self.entries.append(n)
        return len(self.entries)

    @semel.handler
    async def add_slowly(self, ctx: semel.EntityContext, n: int) -> None:
        assert not self.inside
        self.inside = True
        await ctx.sleep("1h")
        self.inside = False
        self.entries.append(n)

    @semel.handler
    async def bump(self, ctx: semel.EntityContext, times: int = 1) -> None:
        total = sum(self.entries)
        await asyncio.sleep(0)
        self.entries = [total + times]


@dataclass
class Money:
    cents: int
    currency: str = "EUR"


class Account:
    balance: Money = field(default_factory=lambda: Money(0))

    @semel.handler("pay-in")
    async def pay_in(self, ctx: semel.EntityContext, amount: Money, *, note: str = "") -> Money:
        assert isinstance(amount, Money)
        self.balance = Money(self.balance.cents + amount.cents, note or "EUR")
        return self.balance


async def test_the_first_message_makes_it(world: World) -> None:
    app = world.app()
    app.entity(Ledger)
    ledger = app.entity(Ledger, "l-1")
    await ledger.send("add", 5)
    assert await world.count("semel_execution") == 1
    async with world.worker(app):
        assert await ledger.ask("add", 6, timeout="60s") == 2
        assert (await ledger.state()).entries == [5, 6]
        assert await app.entity(Ledger, "l-2").ask("add", 7, timeout="60s") == 1
    assert await world.count("semel_execution") == 2


async def test_in_order(world: World) -> None:
    app, other = world.app(), world.app()
    for one in (app, other):
        one.entity(Ledger)
    for n in range(0, 20, 2):
        await app.entity(Ledger, "l-1").send("add", n)
        await other.entity(Ledger, "l-1").send("add", n + 1)
    async with world.worker(app), world.worker(other):
        await asyncio.gather(*(app.entity(Ledger, "l-1").send("add", n) for n in range(20, 200)))
        assert await other.entity(Ledger, "l-1").ask("add", 200, timeout="60s") == 201
        assert (await app.entity(Ledger, "l-1").state()).entries == list(range(201))


async def test_one_at_a_time_while_one_waits(world: World) -> None:
    app = world.app()
    app.entity(Ledger)
    ledger = app.entity(Ledger, "l-1")
    async with world.worker(app):
        await asyncio.gather(*(ledger.send("add-slowly", n) for n in range(3)))
        assert await world.advance_until(ledger.ask("add", 3, timeout="30s")) == 4
        assert (await ledger.state()).entries == [0, 1, 2, 3]


async def test_no_update_is_lost_with_two_workers(world: World) -> None:
    app, other = world.app(), world.app()
    for one in (app, other):
        one.entity(Ledger)
    async with world.worker(app, cached_workflows=0), world.worker(other, cached_workflows=0):
        for _ in range(10):
            await asyncio.gather(
                *(one.entity(Ledger, f"l-{k}").send("bump") for k in range(3) for one in (app, other) for _ in range(5))
            )
        for k in range(3):
            await app.entity(Ledger, f"l-{k}").ask("bump", 0, timeout="60s")
            assert (await other.entity(Ledger, f"l-{k}").state()).entries == [100]


async def test_arguments_and_answers_are_typed(world: World) -> None:
    app = world.app()
    app.entity(Account)
    async with world.worker(app):
        account = app.entity(Account, "a-1")
        assert await account.ask("pay-in", Money(5), timeout="60s") == Money(5)
        assert await account.ask("pay-in", amount=Money(6), note="USD", timeout="60s") == Money(11, "USD")
        assert (await account.state()).balance == Money(11, "USD")


async def test_two_classes_and_two_namespaces_do_not_meet(world: World) -> None:
    app, other = world.app(), world.app(namespace="other")
    for one in (app, other):
        one.entity(Ledger)
        one.entity(Account)
    async with world.worker(app), world.worker(other):
        assert await app.entity(Ledger, "1").ask("add", 1, dedup_key="k", timeout="60s") == 1
        assert await other.entity(Ledger, "1").ask("add", 2, dedup_key="k", timeout="60s") == 1
        assert await app.entity(Account, "1").ask("pay-in", Money(3), dedup_key="k", timeout="60s") == Money(3)
        assert (await app.entity(Ledger, "1").state()).entries == [1]
        assert (await other.entity(Ledger, "1").state()).entries == [2]
