"""A new parameter with a default is a safe change: old and new code run side by side and mean the same requests."""

from typing import Any

import pytest

import semel
from tests.world import World, eventually


class Deploy:
    """One namespace and two apps on it: the code before a deploy, and the code after it."""

    def __init__(self, world: World) -> None:
        self.old, self.new = world.app(), world.app()

        @self.old.task(name="charge", retention="1h", dedup_window="2h")
        async def charge(order: str) -> str:
            return f"old {order}"

        @self.new.task(name="charge", retention="1h", dedup_window="2h")
        async def charge_in(order: str, currency: str = "EUR", *, note: str = "") -> str:
            return f"new {order} {currency}{note}"

        self.charge, self.charge_in = charge, charge_in


@pytest.fixture
def deploy(world: World) -> Deploy:
    return Deploy(world)


async def test_an_old_worker_runs_what_a_new_client_asks_for(world: World, deploy: Deploy) -> None:
    handle = await deploy.new.enqueue(deploy.charge_in, "o-1", task_id="pay")
    async with world.worker(deploy.old):
        assert await handle.result(timeout="60s") == "old o-1"
    assert (await handle.describe()).attempt == 1


async def test_a_new_worker_runs_what_an_old_client_asks_for(world: World, deploy: Deploy) -> None:
    handle = await deploy.old.enqueue(deploy.charge, "o-1", task_id="pay")
    async with world.worker(deploy.new):
        assert await handle.result(timeout="60s") == "new o-1 EUR"


async def test_a_client_may_try_again_across_the_deploy(world: World, deploy: Deploy) -> None:
    first = await deploy.old.enqueue(deploy.charge, "o-1", task_id="pay")
    again = await deploy.new.enqueue(deploy.charge_in, "o-1", task_id="pay")
    said = await deploy.new.enqueue(deploy.charge_in, "o-1", "EUR", note="", task_id="pay")
    assert (again.id, said.id) == (first.id, first.id)
    with pytest.raises(semel.KeyConflict) as caught:
        await deploy.new.enqueue(deploy.charge_in, "o-1", "USD", task_id="pay")
    assert caught.value.differences == {"currency": ("EUR", "USD")}


async def test_a_client_may_try_again_after_the_deploy_was_rolled_back(world: World, deploy: Deploy) -> None:
    first = await deploy.new.enqueue(deploy.charge_in, "o-1", "EUR", task_id="pay")
    again = await deploy.old.enqueue(deploy.charge, "o-1", task_id="pay")
    assert again.id == first.id
    async with world.worker(deploy.new):
        await first.result(timeout="60s")
    await world.advance("90m")
    await deploy.new.clean()  # only the fingerprint is left
    assert (await deploy.old.enqueue(deploy.charge, "o-1", task_id="pay")).id == first.id
    assert (await deploy.new.enqueue(deploy.charge_in, "o-1", task_id="pay")).id == first.id
    with pytest.raises(semel.KeyConflict):
        await deploy.old.enqueue(deploy.charge, "o-2", task_id="pay")


async def test_a_concurrency_key_is_made_of_defaults_too(world: World, deploy: Deploy) -> None:
    seen: list[dict[str, Any]] = []

    def key(**named: Any) -> str:
        seen.append(named)
        return "one"

    @deploy.new.task(concurrency_key=key)
    async def tidy(order: str, currency: str = "EUR") -> None: ...

    request = tidy.concurrency_key_of(tidy.call("o-1").bound)
    assert (request, seen) == ("one", [{"order": "o-1", "currency": "EUR"}])


def workflows(deploy: Deploy) -> tuple[Any, Any]:
    @deploy.old.workflow(name="order")
    async def before(ctx: semel.Context, order: str) -> str:
        first: str = await ctx.execute_task(deploy.charge, order, task_id="paid")
        await ctx.wait_signal("go")
        return first

    @deploy.new.workflow(name="order")
    async def after(ctx: semel.Context, order: str, express: bool = False) -> str:
        first: str = await ctx.execute_task(deploy.charge_in, order, currency="EUR", task_id="paid")
        await ctx.wait_signal("go")
        return f"{first} {express}"

    return before, after


@pytest.mark.slow
async def test_a_workflow_goes_on_with_more_parameters_and_its_start_may_be_repeated(
    world: World, deploy: Deploy
) -> None:
    before, after = workflows(deploy)
    async with world.worker(deploy.old):
        first = await deploy.old.start_workflow(before, "o-1", workflow_id="k")
        paid = await eventually(lambda: deploy.old.find("paid"))
        assert await paid.result(timeout="60s") == "old o-1"
        await eventually(lambda: asked_for_a_signal(first))
    again = await deploy.new.start_workflow(after, "o-1", workflow_id="k")
    assert again.id == first.id
    await again.signal("go")
    async with world.worker(deploy.new):
        assert await again.result(timeout="60s") == "old o-1 False"


async def asked_for_a_signal(handle: semel.Handle[Any]) -> bool:
    return any(event.what == "asked" and event.kind == "signal" for event in await handle.history())


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"currency": "EUR"}], ids=["left out", "given"])
async def test_a_workflow_goes_on_when_a_default_becomes_another(world: World, given: dict[str, str]) -> None:
    def code(default: str) -> tuple[semel.App, Any]:
        app = world.app()

        @app.task
        async def tell(currency: str = default) -> str:
            return currency

        @app.workflow
        async def order(ctx: semel.Context) -> str:
            first: str = await ctx.execute_task(tell, **given)
            await ctx.wait_signal("go")
            return first

        return app, order

    (old, before), (new, _) = code("EUR"), code("USD")
    async with world.worker(old):
        handle = await old.start_workflow(before, workflow_id="k")
        await eventually(lambda: asked_for_a_signal(handle))
    await handle.signal("go")
    async with world.worker(new):
        assert await handle.result(timeout="60s") == "EUR"


@pytest.mark.slow
async def test_a_workflow_joins_what_was_asked_for_before_the_deploy(world: World, deploy: Deploy) -> None:
    paid = await deploy.old.enqueue(deploy.charge, "o-1", task_id="paid")
    async with world.worker(deploy.old):
        await paid.result(timeout="60s")
    _, after = workflows(deploy)
    async with world.worker(deploy.new):
        handle = await deploy.new.start_workflow(after, "o-1", workflow_id="k")
        await handle.signal("go")
        assert await handle.result(timeout="60s") == "old o-1 False"
    assert (await deploy.new.explain("paid")).suppressed[0].reason == "replayed"
