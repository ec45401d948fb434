"""Code that does not do what the journal says is parked with a clear error; nothing is lost, and fixed code goes on."""

import asyncio
import pathlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import semel
from tests.world import World, eventually, waits

pytestmark = pytest.mark.slow

Code = Callable[[semel.Context], Coroutine[Any, Any, Any]]
runs: list[str] = []


async def note(what: str) -> str:
    runs.append(what)
    return what


async def original(ctx: semel.Context) -> list[str]:
    first = await ctx.step(note, "first")
    await ctx.wait_signal("go")
    return [first, await ctx.step(note, "second")]


async def other_step(ctx: semel.Context) -> list[str]:
    first = await ctx.step(note, "other")
    await ctx.wait_signal("go")
    return [first]


async def one_more(ctx: semel.Context) -> list[str]:
    first = await ctx.step(note, "first")
    await ctx.step(note, "one more")
    await ctx.wait_signal("go")
    return [first]


async def one_less(ctx: semel.Context) -> list[str]:
    await ctx.wait_signal("go")
    return []


async def ends_early(ctx: semel.Context) -> list[str]:
    return [await ctx.step(note, "first")]


async def a_timer_instead(ctx: semel.Context) -> list[str]:
    await asyncio.sleep(1)
    return []


async def opens_a_file(ctx: semel.Context) -> list[str]:
    first = await ctx.step(note, "first")
    return [first, pathlib.Path("/etc/hostname").read_text()]  # noqa: ASYNC240


def app_with(world: World, code: Code, **options: Any) -> tuple[semel.App, Any]:
    app = world.app()
    return app, app.workflow(name="flow", **options)(code)


async def parked(handle: semel.Handle[Any]) -> Any:
    execution = await handle.describe()
    return execution.status == "waiting" and execution.error


@pytest.mark.parametrize(
    ("code", "says", "does"),
    [
        (other_step, "step 'note'", "step 'note'"),
        (one_more, "signal 'go'", "step 'note'"),
        (one_less, "step 'note'", "signal 'go'"),
        (ends_early, "signal 'go'", "nothing more"),
        (a_timer_instead, "step 'note'", "timer"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_it_waits_and_goes_on_with_code_that_fits(world: World, code: Code, says: str, does: str) -> None:
    runs.clear()
    first, flow = app_with(world, original)
    second, _ = app_with(world, code)
    third, _ = app_with(world, original)
    async with world.worker(first):
        handle = await waits(await first.start_workflow(flow, workflow_id="k"))
    await handle.signal("go")
    async with world.worker(second):
        error = await eventually(lambda: parked(handle))
        assert error.type.endswith("NonDeterminism")
        assert f"its journal says {says}" in error.message
        assert f"its code now does {does}" in error.message
        assert "ctx.patched" in error.message
        if does != "nothing more":
            assert pathlib.Path(__file__).name in error.message
        await handle.signal("ignored")
    assert (await handle.status()).live
    async with world.worker(third):
        assert await handle.result(timeout="20s") == ["first", "second"]
    assert runs == ["first", "second"]
    assert (await handle.describe()).error is None


async def test_parked_it_is_tried_again_by_itself(world: World) -> None:
    runs.clear()
    fits = [False]

    async def changing(ctx: semel.Context) -> list[str]:
        if fits[0]:
            await ctx.step(note, "first")
        await ctx.wait_signal("go")
        return ["done"]

    first, flow = app_with(world, original)
    second, _ = app_with(world, changing)
    async with world.worker(first):
        handle = await waits(await first.start_workflow(flow, workflow_id="k"))
    await handle.signal("go")
    async with world.worker(second):
        await eventually(lambda: parked(handle))
        fits[0] = True
        await world.advance("5m")
        assert await handle.result(timeout="20s") == ["done"]


async def test_code_that_reaches_outside_is_parked_likewise_and_its_step_is_not_run_again(world: World) -> None:
    runs.clear()
    first, flow = app_with(world, opens_a_file)
    second, _ = app_with(world, original)
    async with world.worker(first):
        handle = await first.start_workflow(flow, workflow_id="k")
        error = await eventually(lambda: parked(handle))
        assert error.type.endswith("Forbidden")
        assert "/etc/hostname" in error.message
        assert pathlib.Path(__file__).name in error.message
        for _ in range(3):
            await world.advance("10m")
            await eventually(lambda: parked(handle))
    assert runs == ["first"]
    async with world.worker(second):
        await waits(handle)
        await handle.signal("go")
        assert await handle.result(timeout="20s") == ["first", "second"]
    assert runs == ["first", "second"]


async def test_forbidden_things_in_a_task_group_park_it_too(world: World) -> None:
    runs.clear()

    async def grouped(ctx: semel.Context) -> list[str]:
        async with asyncio.TaskGroup() as group:
            group.create_task(opens_a_file(ctx))
            group.create_task(asyncio.sleep(3600))
        return []

    app, flow = app_with(world, grouped)
    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert (await eventually(lambda: parked(handle))).type.endswith("Forbidden")


async def test_a_parked_one_can_be_terminated(world: World) -> None:
    app, flow = app_with(world, opens_a_file)
    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: parked(handle))
        assert await handle.terminate() == "cancelled"


async def patched(ctx: semel.Context) -> list[str]:
    first = await ctx.step(note, "first")
    if ctx.patched("checks"):
        await ctx.step(note, "check")
    await ctx.wait_signal("go")
    return [first, "new" if ctx.patched("checks") else "old", await ctx.step(note, "second")]


@pytest.mark.parametrize("cached", [0, 1000])
async def test_a_change_behind_patched_leaves_old_runs_as_they_were(world: World, cached: int) -> None:
    runs.clear()
    first, flow = app_with(world, original)
    second, _ = app_with(world, patched)
    async with world.worker(first):
        old = await waits(await first.start_workflow(flow, workflow_id="old"))
    async with world.worker(second, cached_workflows=cached):
        new = await waits(await second.start_workflow(second.tasks.workflow("flow"), workflow_id="new"))
        for handle in (old, new):
            await handle.signal("go")
        assert await old.result(timeout="20s") == ["first", "old", "second"]
        assert await new.result(timeout="20s") == ["first", "new", "second"]
    assert runs.count("check") == 1
    assert [e.name for e in await new.history() if e.kind == "patch"] == ["checks"]


async def test_versions_live_side_by_side(world: World) -> None:
    runs.clear()
    first, flow = app_with(world, original)
    both, _ = app_with(world, original)

    async def rewritten(ctx: semel.Context) -> str:
        await ctx.wait_signal("go")
        return "version 2"

    two = both.workflow(name="flow", version=2)(rewritten)
    only_new, _ = app_with(world, rewritten, version=2)
    async with world.worker(first):
        old = await waits(await first.start_workflow(flow, workflow_id="old"))
    async with world.worker(only_new):
        await old.signal("go")
        error = await eventually(lambda: parked(old))
        assert "began with version 1" in error.message
    async with world.worker(both):
        new = await both.start_workflow(two, workflow_id="new")
        await new.signal("go")
        assert await old.result(timeout="20s") == ["first", "second"]
        assert await new.result(timeout="20s") == "version 2"
    assert [(await one.history())[0].status for one in (old, new)] == ["version 1", "version 2"]


async def test_the_first_entry_of_every_journal_is_the_baseline(world: World) -> None:
    app, flow = app_with(world, one_less)
    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        began = (await handle.history())[0]
    assert (began.what, began.name, began.status) == ("began", "run 1", "version 1")
