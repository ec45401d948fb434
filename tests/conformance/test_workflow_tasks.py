"""A task of a workflow is a task like any other: on its own queue, under its limits, under one key for everybody."""

import asyncio
import contextlib
from datetime import timedelta

import pytest

import semel
from tests.world import World, ended, eventually, waits


async def test_it_runs_on_its_own_queue_and_knows_its_parent(world: World) -> None:
    app, seen = world.app(), []

    @app.task(queue="payments")
    async def charge(cents: int) -> timedelta:
        running = semel.current()
        seen.append((running.queue, running.parent_workflow_id))
        return timedelta(seconds=cents)

    @app.workflow(queue="orders")
    async def flow(ctx: semel.Context) -> timedelta:
        span = await ctx.execute_task(charge, 60, task_id="t")
        assert isinstance(span, timedelta)
        return span

    handle = await app.start_workflow(flow, workflow_id="k")
    async with world.worker(app, queues=["orders"]):
        await waits(handle)
        assert seen == []
        async with world.worker(app, queues=["payments"]):
            assert await handle.result(timeout="60s") == timedelta(minutes=1)
    assert seen == [("payments", handle.id)]
    task = await app.find("t")
    assert task is not None
    execution = await task.describe()
    assert (execution.parent_id, execution.queue, (await handle.describe()).parent_id) == (handle.id, "payments", None)
    assert f"Started by workflow {handle.id}." in str(await app.explain("t"))


@pytest.mark.needs("limits")
async def test_it_runs_under_the_rate_limit_of_its_queue(world: World) -> None:
    app, runs = world.app(), []
    app.configure_queue("slow", rate_limit="2/hour")

    @app.task(queue="slow")
    async def work(n: int) -> int:
        runs.append(n)
        return n

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.execute_task(work, n) for n in range(4))))

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: len(runs) == 2)
        await waits(handle)
        assert len(runs) == 2
        await world.advance("1h")
        for worker in world._workers:
            worker.wake.set()
        assert await handle.result(timeout="60s") == [0, 1, 2, 3]


async def test_its_errors_are_raised_in_the_workflow(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def fails() -> None:
        raise LookupError("gone")

    @app.task(retry=1, timeout="10ms")
    async def is_late() -> None:
        await asyncio.Event().wait()

    @app.task(queue="nobody")
    async def is_cancelled() -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        for task in (fails, is_late, is_cancelled):
            try:
                await ctx.execute_task(task, task_id=task.name)
            except semel.ExecutionFailed as error:
                heard.append(f"failed {error.error_type} {error.error_message}")
            except semel.ExecutionTimedOut:
                heard.append("timed out")
            except semel.ExecutionCancelled:
                heard.append("cancelled")
        return heard

    async with world.worker(app, queues=["default"], cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        task = await eventually(lambda: app.find("is_cancelled"))
        await waits(handle)
        await task.cancel()
        assert await handle.result(timeout="60s") == ["failed LookupError gone", "timed out", "cancelled"]


async def test_an_error_that_is_not_caught_fails_the_workflow(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def fails() -> None:
        raise LookupError("gone")

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.execute_task(fails)

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        with pytest.raises(semel.ExecutionFailed, match="LookupError: gone") as caught:
            await handle.result(timeout="60s")
        assert caught.value.error_type == "semel.ExecutionFailed"


async def test_clients_and_workflows_share_a_key_and_all_wake(world: World) -> None:
    app, runs, goes_on = world.app(), [], asyncio.Event()

    @app.task
    async def work(n: int) -> int:
        runs.append(n)
        await goes_on.wait()
        return n * 10

    @app.workflow
    async def flow(ctx: semel.Context, name: str) -> tuple[str, int]:
        return name, await ctx.execute_task(work, 4, task_id="t")

    async with world.worker(app, cached_workflows=0):
        one = await app.start_workflow(flow, "one", workflow_id="1")
        two = await app.start_workflow(flow, "two", workflow_id="2")
        client = await app.enqueue(work, 4, task_id="t")
        await eventually(lambda: runs)
        await waits(one)
        await waits(two)
        goes_on.set()
        assert await one.result(timeout="60s") == ("one", 40)
        assert await two.result(timeout="60s") == ("two", 40)
        assert await client.result(timeout="60s") == 40
        three = await app.start_workflow(flow, "three", workflow_id="3")
        assert await three.result(timeout="60s") == ("three", 40), "it had completed: replayed at once"
    assert runs == [4]
    told = await app.explain("t")
    assert sum(s.count for s in told.suppressed) == 3


async def test_one_workflow_may_ask_twice_for_the_same(world: World) -> None:
    app, runs = world.app(), []

    @app.task
    async def work() -> int:
        runs.append(1)
        return len(runs)

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        both = await asyncio.gather(*(ctx.execute_task(work, task_id="t") for _ in range(2)))
        return [*both, await ctx.execute_task(work, task_id="t")]

    async with world.worker(app, cached_workflows=0):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == [1, 1, 1]
    assert runs == [1]


async def test_other_input_under_a_key_is_a_conflict_in_the_workflow(world: World) -> None:
    app = world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.execute_task(work, 2, task_id="t")
        except semel.KeyConflict as error:
            return error.message
        return "nothing happened"

    first = await app.enqueue(work, 1, task_id="t")
    async with world.worker(app, cached_workflows=0):
        message = await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
    assert "'t'" in message
    assert first.id in message
    assert "other input" in message


async def test_a_failed_one_runs_again_under_its_key(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retry=1)
    async def work() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError
        return len(runs)

    @app.workflow
    async def flow(ctx: semel.Context) -> int:
        try:
            return await ctx.execute_task(work, task_id="t")
        except semel.ExecutionFailed:
            return await ctx.execute_task(work, task_id="t")

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == 2


async def test_without_a_key_each_is_one_of_its_own_with_a_key_for_its_effects_that_stays(world: World) -> None:
    app, keys = world.app(), []

    @app.task(retry=semel.Retry(max_attempts=3, initial=0))
    async def work() -> str:
        keys.append(semel.effect_key("x"))
        if len(keys) == 1:
            raise ValueError
        return keys[-1]

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        return [await ctx.execute_task(work), await ctx.execute_task(work)]

    async with world.worker(app, cached_workflows=0):
        first, second = await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
    assert first != second
    assert keys == [first, first, second]


async def test_bad_arguments_are_refused_at_the_line_that_gives_them(world: World) -> None:
    app = world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        with contextlib.suppress(semel.NotEncodable):
            await ctx.execute_task(work, object())
        try:
            await ctx.execute_task(work)
        except TypeError:
            return "refused"
        return "let in"

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await ended(handle) == "completed"
        assert await handle.result(timeout="60s") == "refused"


@pytest.mark.needs("hears_in_steps")
async def test_it_is_heard_of_at_once_while_a_step_runs(world: World) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task
    async def work() -> str:
        return "worked"

    @app.workflow
    async def child(ctx: semel.Context) -> str:
        return await ctx.execute_task(work)

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        step = asyncio.create_task(ctx.step(goes_on.wait, name="long"))
        ctx.publish("task", await ctx.execute_task(work))
        ctx.publish("child", await ctx.execute_workflow(child, workflow_id="c"))
        ctx.publish("signal", await ctx.wait_signal("x"))
        await step

    async with world.worker(app, lease="10m"):  # its heart would look only after minutes
        handle = await app.start_workflow(flow, workflow_id="k")
        for name in ("task", "child"):
            assert await eventually(lambda name=name: handle.published(name)) == "worked"
        await handle.signal("x", "heard")
        assert await eventually(lambda: handle.published("signal")) == "heard"
        goes_on.set()
        await handle.result(timeout="60s")


async def test_an_error_in_a_workflow_does_not_advise_to_run_its_task_again_alone(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def charge() -> None:
        raise ValueError("declined")

    @app.workflow
    async def pay(ctx: semel.Context) -> None:
        await ctx.execute_task(charge)

    async with world.worker(app):
        handle = await app.start_workflow(pay, workflow_id="w")
        with pytest.raises(semel.ExecutionFailed, match="declined") as caught:
            await handle.result(timeout="60s")
    assert caught.value.message.count("semel redrive") == 1
    assert caught.value.message.endswith(f"semel redrive {handle.id}")
