"""Code that does not do what the journal says is parked with a clear error; nothing is lost, and fixed code goes on."""

import asyncio
import logging
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
        assert await handle.result(timeout="60s") == ["first", "second"]
    assert runs == ["first", "second"]
    assert (await handle.describe()).error is None


async def test_a_parked_workflow_logs_no_more_than_one_traceback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first, flow = app_with(world, original)
    second, _ = app_with(world, other_step)
    async with world.worker(first):
        handle = await waits(await first.start_workflow(flow, workflow_id="k"))
    await handle.signal("go")
    async with world.worker(second):
        await eventually(lambda: parked(handle))
        await world.advance("1h")
        await eventually(lambda: len(failed_tries(caplog)) >= 2)
    assert len([record for record in failed_tries(caplog) if record.exc_info]) <= 1
    assert all("NonDeterminism" in caplog.handler.format(record) for record in failed_tries(caplog))


def failed_tries(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    said = ("is parked", "Failed activation")
    return [record for record in caplog.records if any(one in record.getMessage() for one in said)]


@pytest.mark.journal
async def test_an_unexpected_error_logs_its_traceback_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise KeyError("a fault of ours")

    app, flow = app_with(world, original)
    async with world.worker(app) as worker:
        monkeypatch.setattr(worker.flows, "_take_turns", broken)
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: failed_tries(caplog))
        await eventually(lambda: parked(handle))  # which is written after it was logged
        await world.advance("1h")
        await eventually(lambda: len(failed_tries(caplog)) >= 2)
    first, *others = failed_tries(caplog)
    assert first.exc_info
    assert "in broken" in caplog.handler.format(first)
    assert not any(record.exc_info for record in others)
    assert {record.getMessage() for record in others} == {"workflow 'k' is parked: KeyError: 'a fault of ours'"}
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def raises(ctx: semel.Context) -> list[str]:
    raise LookupError("a typo")


async def begins_again(ctx: semel.Context) -> list[str]:
    ctx.continue_as_new()


@pytest.mark.parametrize(
    ("code", "does"), [(raises, "it raises LookupError: a typo"), (begins_again, "it continues as new")]
)
async def test_it_says_how_code_ended_that_should_have_gone_on(world: World, code: Code, does: str) -> None:
    first, flow = app_with(world, original)
    second, _ = app_with(world, code)
    async with world.worker(first):
        handle = await waits(await first.start_workflow(flow, workflow_id="k"))
    await handle.signal("go")
    async with world.worker(second):
        error = await eventually(lambda: parked(handle))
    assert f"its code now does nothing more: {does} at {pathlib.Path(__file__)}:" in error.message


@pytest.mark.parametrize(
    ("then", "now", "soon", "late"),
    [(None, "1h", "waiting", "waiting"), ("1h", "3h", "timed_out", "timed_out"), ("2h", None, "waiting", "timed_out")],
    ids=["added", "changed", "removed"],
)
async def test_it_keeps_the_time_limit_that_it_began_with(
    world: World, then: str | None, now: str | None, soon: str, late: str
) -> None:
    first, flow = app_with(world, original, timeout=then)
    second, _ = app_with(world, original, timeout=now)
    async with world.worker(first):
        done = await waits(await first.start_workflow(flow, workflow_id="done"))
        left = await waits(await first.start_workflow(flow, workflow_id="left"))
    async with world.worker(second):
        await done.signal("go")
        assert await done.result(timeout="60s") == ["first", "second"]
        for then_is in (soon, late):
            await world.advance("90m")
            await eventually(lambda then_is=then_is: is_now(left, then_is))
    assert (await left.describe()).error is None or late == "timed_out"


async def is_now(handle: semel.Handle[Any], status: str) -> bool:
    return await handle.status() == status


async def asks_for(handle: semel.Handle[Any], name: str) -> bool:
    return any(event.what == "asked" and event.name == name for event in await handle.history())


async def test_what_it_calls_may_get_a_parameter_with_a_default(world: World) -> None:
    def build(*, later: bool) -> tuple[semel.App, Any]:
        app = world.app()
        if later:

            async def task(a: int, b: int = 7, c: str = "c", *, d: list[int] | None = None) -> int:
                return a

            async def child(ctx: semel.Context, a: int, b: int = 7) -> int:
                return a
        else:

            async def task(a: int, c: str = "c") -> int:  # type: ignore[misc]
                return a

            async def child(ctx: semel.Context, a: int) -> int:  # type: ignore[misc]
                return a

        double, kid = app.task(name="double")(task), app.workflow(name="kid")(child)

        @app.workflow(name="flow")
        async def flow(ctx: semel.Context) -> list[int]:
            one = await ctx.execute_task(double, 1)
            two = await ctx.execute_task(double, 2, task_id="two")
            await ctx.enqueue(double, 3)
            four = await ctx.execute_workflow(kid, 4, workflow_id="kid")
            await ctx.wait_signal("go")
            return [one, two, four]

        return app, flow

    first, flow = build(later=False)
    second, _ = build(later=True)
    async with world.worker(first):
        handle = await first.start_workflow(flow, workflow_id="k")
        await eventually(lambda: asks_for(handle, "go"))
        await waits(handle)
    await world.listed()
    assert [one.ok for one in await second.replay(name="flow")] == [True]
    await handle.signal("go")
    async with world.worker(second):
        assert await handle.result(timeout="60s") == [1, 2, 4]


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
        assert await handle.result(timeout="60s") == ["done"]


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
        assert await handle.result(timeout="60s") == ["first", "second"]
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
        assert await old.result(timeout="60s") == ["first", "old", "second"]
        assert await new.result(timeout="60s") == ["first", "new", "second"]
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
        assert await old.result(timeout="60s") == ["first", "second"]
        assert await new.result(timeout="60s") == "version 2"
    assert [(await one.history())[0].status for one in (old, new)] == ["version 1", "version 2"]


async def test_the_first_entry_of_every_journal_is_the_baseline(world: World) -> None:
    app, flow = app_with(world, one_less)
    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        began = (await handle.history())[0]
    assert (began.what, began.name, began.status) == ("began", "run 1", "version 1")
