"""Work whose function was renamed or removed waits, and everything that looks says so."""

import logging
from typing import Any

import pytest

import semel
from tests.world import World, eventually

pytestmark = pytest.mark.slow


class Shop:
    """An app before a deploy, and after it: all of its functions but one were renamed or removed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.old, self.new = world.app(), world.app()

        @self.old.task
        async def charge(order: str) -> str:
            return f"charged {order}"

        @self.old.workflow
        async def order(ctx: semel.Context) -> str:
            return str(await ctx.wait_signal("go"))

        @self.old.entity
        class Account:
            points: int = 0

            @semel.handler
            async def add(self, ctx: semel.EntityContext, points: int) -> int:
                self.points += points
                return self.points

        @self.new.task
        async def charge_card(order: str) -> str:
            return f"charged {order}"

        self.charge, self.order, self.account = charge, order, Account

    async def leave_work(self) -> None:
        """One of each kind, which only the old code has the function of."""
        await self.old.start_workflow(self.order, workflow_id="order-1")
        async with self.world.worker(self.old):
            await self.old.entity(self.account, "ann").ask("add", 1)
            await eventually(lambda: self.waits_for_a_signal())
        await self.old.enqueue(self.charge, "o-1", task_id="pay-1")
        await self.world.listed()

    async def waits_for_a_signal(self) -> bool:
        handle = await self.old.find("order-1", kind="workflow")
        return handle is not None and any(event.kind == "signal" for event in await handle.history())


@pytest.fixture
def shop(world: World) -> Shop:
    return Shop(world)


NAMES = {"charge", "order", "Account"}


async def test_the_gate_names_what_the_new_code_has_no_function_for(world: World, shop: Shop) -> None:
    await shop.leave_work()
    assert [one.error for one in await shop.old.replay() if not one.ok] == []
    found = {one.name: one for one in await shop.new.replay()}
    assert found.keys() == NAMES
    assert not any(one.ok for one in found.values())
    assert "this code has no workflow 'order', and it waits on queue 'default'" in found["order"].error
    assert {one.key for one in found.values()} == {"pay-1", "order-1", "Account/ann"}
    assert [one.name for one in await shop.new.replay(name="order")] == ["order"]
    assert await shop.new.replay(missing=False) == []


async def test_doctor_explain_and_the_list_say_that_no_worker_has_it(
    world: World, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    await shop.leave_work()
    with caplog.at_level(logging.WARNING, "semel.worker"):
        async with world.worker(shop.new) as worker:
            await world.listed()
            (functions,) = [one for one in await shop.new.doctor() if one.what == "functions"]
            assert not functions.ok
            assert "task 'charge' on queue 'default' (1 waiting since 2" in functions.detail
            assert "such as pay-1)" in functions.detail
            assert "workflow 'order'" in functions.detail
            assert {(one.kind, one.name) for one in await shop.new.unserved()} == {
                ("task", "charge"), ("workflow", "order"), ("entity", "Account"),
            }  # fmt: skip
            said = "No worker that runs has a task 'charge' on queue 'default'"
            assert said in str(await shop.new.explain("pay-1"))
            assert "has a workflow 'order'" in str(await shop.new.explain("order-1", kind="workflow"))
            await look(worker)
            await look(worker)
            warned = [record.message for record in caplog.records if "no worker that runs has a" in record.message]
            assert len(warned) == len(NAMES), "once of each"
            async with world.worker(shop.old):
                assert await shop.new.unserved() == []
                (functions,) = [one for one in await shop.new.doctor() if one.what == "functions"]
                assert functions.ok, functions.detail
                assert (
                    await (await shop.old.enqueue(shop.charge, "o-1", task_id="pay-1")).result("60s") == "charged o-1"
                )


async def look(worker: Any) -> None:
    """As a worker does by itself with each heartbeat; here it does not wait for workers that may be restarting."""
    worker.lookout.warner.patience = 0.0
    await worker.lookout.look()


async def test_a_worker_of_another_queue_does_not_have_it(world: World, shop: Shop) -> None:
    handle = await shop.old.enqueue(shop.charge, "o-1", task_id="pay-1", queue="cards")
    await world.listed()
    async with world.worker(shop.old, queues=["default"]):
        (missing,) = await shop.old.unserved()
        assert (missing.name, missing.queue, missing.count, missing.key) == ("charge", "cards", 1, "pay-1")
        async with world.worker(shop.old, queues=["cards"]):
            assert await handle.result("60s") == "charged o-1"
