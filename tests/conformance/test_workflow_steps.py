"""A step that was recorded never runs again, whatever becomes of its worker."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

import semel
from tests.world import World, eventually, waits


@pytest.mark.parametrize("cached", [0, 1000])
async def test_steps_run_once_each_and_in_order(world: World, cached: int) -> None:
    app, runs = world.app(), []

    def sync(n: int) -> int:
        runs.append(n)
        return n

    async def async_(n: int, *, by: int = 1) -> int:
        runs.append(n)
        await asyncio.sleep(0)
        return n * by

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        got = [await ctx.step(sync, 1), await ctx.step(async_, 2, by=10)]
        await ctx.wait_signal("go")
        got += [await ctx.step(lambda: sync(3), name="third")]
        return got + list(await asyncio.gather(ctx.step(sync, 4), ctx.step(async_, 5)))

    async with world.worker(app, cached_workflows=cached):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("go")
        assert await handle.result(timeout="60s") == [1, 20, 3, 4, 5]
    assert sorted(runs) == [1, 2, 3, 4, 5]
    names = [event.name for event in await handle.history() if (event.what, event.kind) == ("asked", "step")]
    assert names == ["sync", "async_", "third", "sync", "async_"]


@pytest.mark.journal("takes the lease of a worker away")
async def test_another_worker_goes_on_after_the_last_recorded_one(world: World) -> None:
    runs: list[str] = []
    apps = [world.app(), world.app()]
    for app in apps:

        @app.workflow
        async def flow(ctx: semel.Context) -> list[str]:
            first = await ctx.step(note, "first")
            second = await ctx.step(hang_once, "second")
            return [first, second, await ctx.step(note, "third")]

    async def note(name: str) -> str:
        runs.append(name)
        return name

    async def hang_once(name: str) -> str:
        runs.append(name)
        if runs.count(name) == 1:
            await asyncio.Event().wait()
        return name

    handle = await apps[0].start_workflow(flow, workflow_id="k")
    async with world.worker(apps[0], grace=0) as dead:
        await eventually(lambda: "second" in runs)
        await world.cut_off(dead)
        async with world.worker(apps[1]):
            await world.advance("31s")
            assert await handle.result(timeout="60s") == ["first", "second", "third"]
    assert runs == ["first", "second", "second", "third"]


async def test_one_that_fails_is_tried_as_often_as_it_may(world: World) -> None:
    app, runs = world.app(), []

    def flaky(least: int) -> int:
        runs.append(semel.current().attempt)
        if len(runs) < least:
            raise ConnectionError("not yet")
        return len(runs)

    @app.workflow
    async def flow(ctx: semel.Context) -> tuple[int, str]:
        first = await ctx.step(flaky, 3, retry=semel.Retry(max_attempts=5, initial=0))
        try:
            await ctx.step(flaky, 100)
        except semel.ExecutionFailed as error:
            return first, f"{error.error_type}: {error.error_message}"
        return first, ""

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == (3, "ConnectionError: not yet")
    assert runs == [1, 2, 3, 1]


@dataclass
class Receipt:
    cents: int
    span: timedelta


async def test_results_come_back_as_what_they_were_also_from_the_journal(world: World) -> None:
    app, seen = world.app(), []

    def pay() -> Receipt:
        return Receipt(3, timedelta(hours=2))

    def pair() -> tuple[int, str]:
        return 1, "x"

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        receipt, two = await ctx.step(pay), await ctx.step(pair)
        await ctx.wait_signal("go")
        seen.append((receipt, two))

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("go")
        await handle.result(timeout="60s")
    assert seen == [(Receipt(3, timedelta(hours=2)), (1, "x"))]


async def test_what_cannot_be_stored_is_an_error_of_the_step(world: World) -> None:
    app, runs = world.app(), []

    def strange() -> object:
        runs.append(1)
        return object()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.step(strange, retry=5)
        except semel.ExecutionFailed as error:
            return error.error_type
        return ""

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert "NotEncodable" in await handle.result(timeout="60s")
    assert runs == [1], "another try would not help"


async def test_keys_of_effects_are_the_same_for_every_try_and_another_for_every_step(world: World) -> None:
    app, keys = world.app(), []

    def effect() -> str:
        keys.append(semel.effect_key("x"))
        if len(keys) == 1:
            raise ConnectionError
        return keys[-1]

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        got = [await ctx.step(effect, retry=semel.Retry(max_attempts=2, initial=0)), await ctx.step(effect)]
        await ctx.wait_signal("go")
        return [*got, await ctx.step(effect), await ctx.step(effect, name="other"), ctx.effect_key("x")]

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("go")
        first, *others = await handle.result(timeout="60s")
    assert len({first, *others}) == 5
    assert keys == [first, first, *others[:3]]


async def test_keys_of_effects_stay_when_a_failed_workflow_is_run_again(world: World) -> None:
    app, keys = world.app(), []

    def effect() -> None:
        keys.append(semel.effect_key("x"))
        if len(keys) == 1:
            raise ConnectionError

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.step(effect)

    async with world.worker(app):
        for _ in range(2):
            with_suppressed = await app.start_workflow(flow, workflow_id="k")
            await asyncio.wait([asyncio.ensure_future(with_suppressed.result(timeout="60s"))])
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_a_step_that_waits_has_one_task_from_its_first_line_on(world: World) -> None:
    """`asyncio.timeout` interrupts the task it was entered in: that must be the step's, and not the workflow's."""
    app = world.app()

    async def late() -> None:
        first = asyncio.current_task()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            assert asyncio.current_task() is first
            raise ConnectionError("too late") from None

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await ctx.step(late)
        except semel.ExecutionFailed as error:
            return f"{error.error_type}: {error.error_message}"
        return ""

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == "ConnectionError: too late"


async def test_leaving_python_in_a_step_ends_the_step_and_not_the_worker(world: World) -> None:
    app = world.app()

    def leave() -> None:
        raise SystemExit(1)

    async def leave_too() -> None:
        raise SystemExit(2)

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        for fn in (leave, leave_too):
            try:
                await ctx.step(fn)
            except semel.ExecutionFailed as error:
                heard.append(error.error_type)
        return heard

    async with world.worker(app) as worker:
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == ["SystemExit", "SystemExit"]
        assert worker.healthy


async def test_a_step_that_the_code_gives_up_is_stopped(world: World) -> None:
    app, heard = world.app(), []

    async def hang() -> None:
        heard.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            async with asyncio.timeout(60):
                await ctx.step(hang)
        except TimeoutError:
            return "late"
        return ""

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: heard)
        await world.advance("61s")
        assert await handle.result(timeout="60s") == "late"
    assert heard == ["begun", "cancelled"]


async def test_a_cancellation_of_its_own_is_an_error_like_any_other(world: World) -> None:
    app, runs = world.app(), []

    async def awaits_a_cancelled_one() -> None:
        runs.append("inner")
        inner = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    async def cancels_itself() -> None:
        runs.append("itself")
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    def raises_it() -> None:
        runs.append("sync")
        raise asyncio.CancelledError("own")

    async def is_interrupted_once() -> str:
        runs.append("twice")
        if runs.count("twice") == 1:
            raise asyncio.CancelledError
        return "well"

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        heard = []
        for fn in (awaits_a_cancelled_one, cancels_itself, raises_it):
            try:
                await ctx.step(fn)
            except semel.ExecutionFailed as error:
                heard.append(error.error_type)
        return [*heard, await ctx.step(is_interrupted_once, retry=semel.Retry(max_attempts=2, initial=0))]

    async with world.worker(app, concurrency=1):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == ["asyncio.exceptions.CancelledError"] * 3 + ["well"]
    assert runs == ["inner", "itself", "sync", "twice", "twice"]


async def test_one_that_the_code_gives_up_is_not_tried_again(world: World) -> None:
    app, heard = world.app(), []

    async def hang() -> None:
        heard.append("begun")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("closed") from None

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            async with asyncio.timeout(60):
                await ctx.step(hang, retry=semel.Retry(max_attempts=2, initial=0))
        except TimeoutError:
            await ctx.sleep("10s")
        return "late"

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: heard)
        await world.advance("61s")
        await waits(handle)
        await world.advance("61s")
        assert await handle.result(timeout="60s") == "late"
    assert heard == ["begun"]
