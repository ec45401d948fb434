"""Two services in one database: a task of another app is refused, and one name for two functions is seen."""

import logging
from typing import Any

import pytest

import semel
from tests.world import World


class Services:
    """Two services that share a namespace, and a name that means another function in each."""

    def __init__(self, world: World) -> None:
        self.shop, self.billing = world.app(), world.app()

        @self.shop.task
        async def pack(order: str) -> str:
            return f"packed {order}"

        @self.shop.workflow
        async def order(ctx: semel.Context) -> None: ...

        @self.shop.task(name="charge")
        async def charge_points(order: str) -> str:
            return f"{order}: points"

        @self.billing.task(name="charge")
        async def charge_card(order: str) -> str:
            return f"{order}: card"

        self.pack, self.order, self.charge_points, self.charge_card = pack, order, charge_points, charge_card


@pytest.fixture
def services(world: World) -> Services:
    return Services(world)


async def test_what_another_app_defines_is_refused_and_both_are_named(world: World, services: Services) -> None:
    billing, pack, order = services.billing, services.pack, services.order
    absent = r"task 'pack' \(.*\.pack\) belongs to another app: this one has none of that name"
    with pytest.raises(semel.InvalidValue, match=absent):
        await billing.enqueue(pack, "o-1")
    with pytest.raises(semel.InvalidValue, match=absent):
        await billing.enqueue_many([pack.call("o-1")])
    with pytest.raises(semel.InvalidValue, match="workflow 'order'"):
        await billing.start_workflow(order, workflow_id="w")
    with pytest.raises(
        semel.InvalidValue, match=r"charge_points\) belongs to another app: .*charge_card under that name"
    ):
        await billing.enqueue(services.charge_points, "o-1")


async def test_the_same_function_may_be_defined_with_two_apps(world: World, services: Services) -> None:
    twice = services.billing.task(services.pack.fn)
    handle = await services.billing.enqueue(services.pack, "o-1")
    assert twice.name == "pack"
    async with world.worker(services.billing):
        assert await handle.result("60s") == "packed o-1"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["task", "enqueue", "child"])
async def test_a_workflow_does_not_ask_for_what_another_app_defines(world: World, services: Services, how: str) -> None:
    @services.billing.workflow
    async def bill(ctx: semel.Context) -> Any:
        match how:
            case "task":
                return await ctx.execute_task(services.pack, "o-1")
            case "enqueue":
                return await ctx.enqueue(services.pack, "o-1")
            case _:
                return await ctx.execute_workflow(services.order, workflow_id="w")

    async with world.worker(services.billing):
        handle = await services.billing.start_workflow(bill, workflow_id="b")
        with pytest.raises(semel.ExecutionFailed, match="belongs to another app"):
            await handle.result("60s")


@pytest.mark.slow
async def test_one_name_for_two_functions_is_seen(
    world: World, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "semel.worker"):
        async with world.worker(services.shop) as worker:
            assert all(finding.ok for finding in await services.shop.doctor() if "two functions" in finding.what)
            async with world.worker(services.billing):
                (twins,) = [one for one in await services.shop.doctor() if one.what == "one name, two functions"]
                assert not twins.ok
                assert "'charge' is" in twins.detail
                assert "charge_card and" in twins.detail
                assert "charge_points in different workers" in twins.detail
                await look(worker)
                await look(worker)
    assert len([record for record in caplog.records if "'charge' is" in record.message]) == 1


async def look(worker: Any) -> None:
    """As a worker does by itself with each heartbeat; here it does not wait for workers that may be restarting."""
    worker.lookout.warner.patience = 0.0
    await worker.lookout.look()
