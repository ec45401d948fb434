"""A message key stands for one handler and one set of arguments: another message under it is refused and named."""

import asyncio
from collections.abc import Sequence

import pytest

import semel
from semel.contract.decision import Reason
from tests.world import World, eventually


class Account:
    balance: int = 0

    @semel.handler
    async def pay_in(self, ctx: semel.EntityContext, cents: int, note: str = "") -> int:
        if cents < 0:
            raise ValueError(f"not {cents}")
        self.balance += cents
        return self.balance

    @semel.handler
    async def pay_out(self, ctx: semel.EntityContext, cents: int) -> int:
        self.balance -= cents
        return self.balance

    @semel.handler
    async def nap(self, ctx: semel.EntityContext) -> int:
        await ctx.sleep("10m")
        return self.balance

    @semel.handler
    async def close(self, ctx: semel.EntityContext) -> None:
        ctx.end()


def counts(explained: semel.Explanation) -> dict[Reason, int]:
    found: dict[Reason, int] = {}
    for one in explained.suppressed:
        found[one.reason] = found.get(one.reason, 0) + one.count
    return found


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_key_of_another_handler_or_with_other_arguments_is_refused(world: World, cached: int) -> None:
    app = world.app()
    app.entity(Account)
    account = app.entity(Account, "a")
    async with world.worker(app, cached_workflows=cached):
        assert await account.ask("pay-in", 100, dedup_key="k", timeout="60s") == 100
        with pytest.raises(semel.KeyConflict, match="'pay-in' -> 'pay-out'") as handler:
            await account.ask("pay-out", 100, dedup_key="k", timeout="60s")
        assert handler.value.differences == {}
        with pytest.raises(semel.KeyConflict, match="'pay-in' with other arguments") as arguments:
            await account.ask("pay-in", 5, "x", dedup_key="k", timeout="60s")
        assert [(name, new) for name, (_, new) in arguments.value.differences.items()] == [("cents", 5), ("note", "x")]
        assert "(cents: (not kept) -> 5, note: (not kept) -> 'x')" in arguments.value.message
        assert "semel explain Account/a --kind entity" in arguments.value.message
        for same in (("pay-in", 100), ("pay-in", 100, "")):  # as good as left out
            assert await account.ask(*same, dedup_key="k", timeout="60s") == 100
        await account.send("pay-out", 1, dedup_key="k")
        assert await account.ask("pay-in", 0, timeout="60s") == 100
        found = await app.explain(account.key, kind="entity")
    assert counts(found) == {Reason.SEEN: 2, Reason.MESSAGE_DIFFERS: 3}
    assert "3 duplicates did not run (refused: its key belonged to another message)" in str(found)


async def test_who_asks_while_the_other_one_is_under_way_or_waits_is_refused(world: World) -> None:
    app = world.app()
    app.entity(Account)
    account = app.entity(Account, "a")
    async with world.worker(app):
        first = asyncio.create_task(account.ask("nap", dedup_key="nap", timeout="60s"))
        second = asyncio.create_task(account.ask("pay-in", 7, dedup_key="k", timeout="60s"))
        await eventually(lambda: waits(app, account.key))
        others = [account.ask("pay-in", n, dedup_key=key, timeout="60s") for n, key in ((8, "k"), (9, "nap"))]

        async def all_of_them() -> list[object]:
            return list(await asyncio.gather(*others, return_exceptions=True))

        assert [type(one).__name__ for one in await world.advance_until(all_of_them(), "10m")] == ["KeyConflict"] * 2
        assert (await first, await second) == (0, 7)


async def test_a_key_outlives_the_entity_with_what_it_stands_for(world: World) -> None:
    app = world.app()
    app.entity(Account)
    account = app.entity(Account, "a")
    async with world.worker(app):
        await account.ask("pay-in", 100, dedup_key="k", timeout="60s")
        await account.ask("close", timeout="60s")
        await eventually(lambda: ended(app, account.key))
        assert await account.ask("pay-in", 100, dedup_key="k", timeout="60s") == 100
        with pytest.raises(semel.KeyConflict, match="cents"):
            await account.ask("pay-in", 5, dedup_key="k", timeout="60s")
        assert await account.ask("pay-in", 1, timeout="60s") == 1


async def waits(app: semel.App, key: str) -> bool:
    handle = await app.find(key, kind="entity")
    return handle is not None and await handle.status() == "waiting"


async def ended(app: semel.App, key: str) -> bool:
    handle = await app.find(key, kind="entity")
    return handle is None or (await handle.describe()).status.terminal


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_message_that_failed_frees_its_key(world: World, cached: int) -> None:
    app = world.app()
    app.entity(Account)
    account = app.entity(Account, "a")
    async with world.worker(app, cached_workflows=cached):
        for cents in (-1, -1, -2):
            with pytest.raises(semel.ExecutionFailed, match=f"not {cents}"):
                await account.ask("pay-in", cents, dedup_key="k", timeout="60s")
        assert await account.ask("pay-in", 5, dedup_key="k", timeout="60s") == 5
        assert await account.ask("pay-in", 5, dedup_key="k", timeout="60s") == 5
        with pytest.raises(semel.KeyConflict):
            await account.ask("pay-in", -1, dedup_key="k", timeout="60s")


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_message_that_failed_can_be_seen_and_sent_again(world: World, cached: int) -> None:
    app, patience = world.app(), {"open": False}

    @app.entity
    class Till:
        coins: int = 0

        @semel.handler
        async def put(self, ctx: semel.EntityContext, coin: int) -> int:
            if not await ctx.step(lambda: patience["open"], name="look"):
                raise ValueError("closed")
            self.coins += coin
            return self.coins

    till = app.entity(Till, "t")
    with pytest.raises(semel.NotFound, match="no entity 'Till/t'"):
        await till.failed()
    async with world.worker(app, cached_workflows=cached):
        await till.send("put", 1, dedup_key="k")
        await till.send("put", 2)
        with pytest.raises(semel.ExecutionFailed):  # nobody has to be told of it but who asked
            await till.ask("put", 4, timeout="60s")
        failed = await till.failed()
        assert [(one.handler, one.dedup_key, one.arguments, one.error.message) for one in failed] == [
            ("put", None, {"coin": 2}, "closed"),
            ("put", "k", {"coin": 1}, "closed"),
        ]
        await app.entity(Till, "other").send("put", 3)
        everywhere = await eventually(lambda: all_failed(app, 3))
        assert [(one.entity, one.arguments) for one in everywhere] == [
            ("Till/other", {"coin": 3}),
            ("Till/t", {"coin": 2}),
            ("Till/t", {"coin": 1}),
        ]
        told = await app.explain(till.key, kind="entity")
        assert f"#{failed[1].number} 'put' with key 'k', " in str(told)
        assert "semel entities redrive Till/t" in str(told)
        assert told.undelivered.failed == failed

        async def is_found() -> bool:
            return any(one.what == "failed messages" and "Till/t" in one.detail for one in await app.doctor())

        await eventually(is_found)
        assert [one.number for one in await till.redrive()] == [one.number for one in reversed(failed)]
        with pytest.raises(semel.ExecutionFailed):
            await till.ask("put", 4, timeout="60s")
        again = await till.failed()
        assert [(one.dedup_key, one.arguments) for one in again] == [(None, {"coin": 2}), ("k", {"coin": 1})]
        with pytest.raises(semel.NotRedrivable, match=f"no failed message #{failed[0].number}"):
            await till.redrive(failed[0].number)
        patience["open"] = True
        await asyncio.gather(*(till.redrive(again[0].number) for _ in range(3)), return_exceptions=True)
        await till.redrive(again[1].number)
        assert await till.ask("put", 0, timeout="60s") == 3
        assert await till.failed() == ()
        assert await till.ask("put", 1, dedup_key="k", timeout="60s") in (1, 3)
        assert await till.ask("put", 0, timeout="60s") == 3


async def all_failed(app: semel.App, count: int) -> Sequence[semel.FailedMessage]:
    found = await app.failed_messages()
    return found if len(found) == count else ()


async def test_refused_messages_are_listed_and_failed_ones_outlive_the_entity(world: World) -> None:
    app = world.app()
    app.entity(Account)
    account = app.entity(Account, "a")
    async with world.worker(app):
        await account.ask("pay-in", 1, dedup_key="k", timeout="60s")
        await account.send("pay-out", 1, dedup_key="k")
        await account.send("pay-in", 2, dedup_key="k")
        await account.send("pay-in", -1, dedup_key="bad")
        await account.ask("close", timeout="60s")
        await eventually(lambda: ended(app, account.key))
        found = (await app.explain(account.key, kind="entity")).undelivered
        assert [(one.held, one.offered, one.fields) for one in found.refused] == [
            ("pay-in", "pay-in", ("cents",)),
            ("pay-in", "pay-out", ()),
        ]
        assert [(one.handler, one.dedup_key) for one in found.failed] == [("pay-in", "bad")]
        assert await account.ask("pay-in", 5, dedup_key="bad", timeout="60s") == 5
        assert (await app.explain(account.key, kind="entity")).undelivered.failed == ()
