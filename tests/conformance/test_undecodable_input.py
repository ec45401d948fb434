"""Input that a worker cannot decode is left for one that can; it fails only when nobody could for long enough."""

import logging
from typing import Any

import pytest

import semel
from tests.world import World, eventually


class Deploy:
    """Code before and after a deploy that changed what a function takes."""

    def __init__(self, world: World) -> None:
        self.old, self.new = world.app(), world.app()

        @self.old.task(name="charge", retry=1)
        async def charge(order: str) -> str:
            return f"old {order}"

        @self.new.task(name="charge", retry=1)
        async def charge_in(order: str, currency: str = "EUR") -> str:
            return f"new {order} {currency}"

        self.charge, self.charge_in = charge, charge_in


@pytest.fixture
def deploy(world: World) -> Deploy:
    return Deploy(world)


async def not_decoded(handle: semel.Handle[Any]) -> Any:
    execution = await handle.describe()
    return execution.error if execution.error and execution.error.type.endswith("NotDecodable") else None


async def test_an_old_worker_leaves_what_only_new_code_can_read(
    world: World, deploy: Deploy, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await deploy.new.enqueue(deploy.charge_in, "o-1", "USD", task_id="pay")
    with caplog.at_level(logging.WARNING, "semel.worker"):
        async with world.worker(deploy.old):
            error = await eventually(lambda: not_decoded(handle))
            execution = await handle.describe()
    assert (execution.status.live, execution.attempt) == (True, 0)
    assert "currency" in error.message
    assert "decode_timeout" in error.message
    assert any("task 'charge' is left for a worker whose code fits" in record.message for record in caplog.records)
    assert "left for a worker whose code fits" in str(await deploy.new.explain("pay"))
    async with world.worker(deploy.new):
        await world.advance("1m")
        assert await handle.result(timeout="60s") == "new o-1 USD"
    ended = await handle.describe()
    assert (ended.attempt, ended.error) == (1, None)


async def test_it_fails_when_nobody_could_read_it_for_long_enough(world: World, deploy: Deploy) -> None:
    handle = await deploy.new.enqueue(deploy.charge_in, "o-1", "USD", task_id="pay")
    async with world.worker(deploy.old, decode_timeout="1d"):
        await eventually(lambda: not_decoded(handle))
        # Real minutes pass as well on a busy machine: there are some between this and the end of the day.
        await world.advance("23h50m")
        assert (await handle.status()).live
        # It may be offered to a worker in the very moment when time is moved, and then waits for another minute.
        with pytest.raises(semel.ExecutionFailed, match=r"currency.*No worker could decode it for 1d"):
            await world.advance_until(handle.result(timeout="200s"), step="10m")
    again = await deploy.new.enqueue(deploy.charge_in, "o-1", "USD", task_id="pay")
    assert not again.duplicate, "it failed, which frees its key"
    async with world.worker(deploy.new):
        assert await again.result(timeout="60s") == "new o-1 USD"


async def test_without_patience_it_fails_at_once(world: World, deploy: Deploy) -> None:
    handle = await deploy.new.enqueue(deploy.charge_in, "o-1", "USD")
    async with world.worker(deploy.old, decode_timeout=0):
        with pytest.raises(semel.ExecutionFailed, match="currency"):
            await handle.result(timeout="60s")


async def test_one_that_waits_can_be_cancelled(world: World, deploy: Deploy) -> None:
    handle = await deploy.new.enqueue(deploy.charge_in, "o-1", "USD")
    async with world.worker(deploy.old):
        await eventually(lambda: not_decoded(handle))
        await handle.cancel()
        with pytest.raises(semel.ExecutionCancelled):
            await handle.result(timeout="60s")


@pytest.mark.slow
async def test_a_workflow_waits_for_a_task_that_only_other_workers_can_read(world: World, deploy: Deploy) -> None:
    @deploy.new.workflow(queue="flows")
    async def order(ctx: semel.Context) -> str:
        found: str = await ctx.execute_task(deploy.charge_in, "o-1", "USD")
        return found

    @deploy.old.task(name="other")
    async def other() -> str:
        return "done"

    async with world.worker(deploy.new, queues=["flows"]), world.worker(deploy.old, queues=["default"]):
        handle = await deploy.new.start_workflow(order, workflow_id="k")
        assert await (await deploy.old.enqueue(other)).result(timeout="60s") == "done"
    async with world.worker(deploy.new):
        await world.advance("1m")
        assert await handle.result(timeout="60s") == "new o-1 USD"


def starts(world: World) -> tuple[semel.App, semel.App, Any]:
    old, new = world.app(), world.app()

    @old.workflow(name="order")
    async def before(ctx: semel.Context, order: str) -> str:
        return f"old {order}"

    @new.workflow(name="order")
    async def after(ctx: semel.Context, order: str, express: bool = False) -> str:
        return f"new {order} {express}"

    return old, new, after


@pytest.mark.slow
async def test_a_workflow_whose_start_only_new_code_can_read_is_parked(world: World) -> None:
    old, new, after = starts(world)
    handle = await new.start_workflow(after, "o-1", express=True, workflow_id="k")
    async with world.worker(old):
        error = await eventually(lambda: not_decoded(handle))
        assert "express" in error.message
        assert (await handle.status()).live
    async with world.worker(new):
        assert await handle.result(timeout="60s") == "new o-1 True"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["step", "task"])
async def test_a_workflow_that_cannot_read_a_recorded_result_is_parked(world: World, how: str) -> None:
    def code(fn: Any) -> tuple[semel.App, Any]:
        app = world.app()
        task = app.task(name="price")(fn)

        @app.workflow
        async def order(ctx: semel.Context) -> Any:
            found = await (ctx.step(fn, name="price") if how == "step" else ctx.execute_task(task))
            await ctx.wait_signal("go")
            return found

        return app, order

    async def in_words() -> str:
        return "nine"

    async def in_cents() -> int:
        return 9

    (first, flow), (second, _), (third, _) = code(in_words), code(in_cents), code(in_words)
    async with world.worker(first):
        handle = await first.start_workflow(flow, workflow_id="k")
        await eventually(lambda: waits_for_a_signal(handle))
    await handle.signal("go")
    async with world.worker(second):
        error = await eventually(lambda: parked(handle))
        assert f"the recorded result of {how} 'price'" in error.message
    assert (await handle.status()).live
    async with world.worker(third):
        assert await handle.result(timeout="60s") == "nine"


async def waits_for_a_signal(handle: semel.Handle[Any]) -> bool:
    return any(event.what == "asked" and event.kind == "signal" for event in await handle.history())


async def parked(handle: semel.Handle[Any]) -> Any:
    execution = await handle.describe()
    return execution.status == "waiting" and execution.error


async def test_a_client_with_another_type_loses_nothing(world: World) -> None:
    old, new = world.app(), world.app()

    @old.task(name="price")
    async def in_cents() -> int: ...  # type: ignore[empty-body]

    @new.task(name="price")
    async def in_words() -> str:
        return "nine"

    handle = await old.enqueue(in_cents, task_id="p")
    async with world.worker(new):
        with pytest.raises(semel.NotDecodable, match="does not fit the return annotation"):
            await handle.result(timeout="60s")
    found = await new.find("p")
    assert found is not None
    assert await found.result(timeout="60s") == "nine"
