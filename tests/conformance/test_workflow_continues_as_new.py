"""A workflow that continues as new keeps its id, its signals and the keys it has seen; its journal begins anew."""

import asyncio
import contextlib

import pytest

import semel
from tests.world import World, ended, eventually, waits


@pytest.mark.parametrize("cached", [0, 1000])
async def test_no_signal_is_lost_and_none_counts_twice(world: World, cached: int) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, total: int = 0, done: int = 0) -> tuple[int, int]:
        for _ in range(40):
            total += await ctx.wait_signal("add")
            done += 1
            if done == 250:
                break
        else:
            ctx.continue_as_new(total, done)
        return total, int(ctx.run_id.rpartition(".")[2])

    async with world.worker(app, cached_workflows=cached):
        handle = await app.start_workflow(flow, workflow_id="k")

        async def send(first: int) -> None:
            for n in range(first, 250, 5):
                await handle.signal("add", n, dedup_key=f"n{n}")
                if n % 3 == 0:
                    with contextlib.suppress(semel.WorkflowEnded):  # the last ones may come when all is done
                        await handle.signal("add", n, dedup_key=f"n{n}")

        await asyncio.gather(*(send(first) for first in range(5)))
        assert await handle.result(timeout="60s") == (sum(range(250)), 7)
    assert len(await handle.history()) < 200


async def test_the_run_is_another_and_the_rest_is_the_same(world: World) -> None:
    app, seen = world.app(), []

    async def note(*what: object) -> None:
        seen.append(what)

    @app.workflow
    async def flow(ctx: semel.Context, n: int = 1) -> str:
        ctx.search_attributes["n"] = str(n)
        ctx.publish("n", n)
        await ctx.step(note, ctx.workflow_id, ctx.run_id, ctx.execution_id, ctx.effect_key("x"))
        if n < 3:
            ctx.continue_as_new(n + 1)
        return f"run {n}"

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == "run 3"
        assert (await handle.attributes(), await handle.published("n")) == ({"n": "3"}, 3)
    assert [(one[0], one[1], one[2]) for one in seen] == [("k", f"{handle.id}.{n}", handle.id) for n in (1, 2, 3)]
    assert len({one[3] for one in seen}) == 1
    assert (await handle.history())[0].name == "run 3"
    again = await app.start_workflow(flow, workflow_id="k")
    assert again.duplicate


async def test_keys_of_effects_go_on(world: World) -> None:
    app, keys = world.app(), []

    def effect() -> None:
        keys.append(semel.effect_key("x"))

    @app.workflow
    async def flow(ctx: semel.Context, n: int = 1) -> None:
        await ctx.step(effect)
        if n < 3:
            ctx.continue_as_new(n + 1)

    async with world.worker(app):
        await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
    assert len(set(keys)) == 3


async def test_a_late_answer_to_the_run_before_is_no_answer_to_this_one(world: World) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task
    async def slow(n: int) -> str:
        await goes_on.wait()
        return f"slow {n}"

    @app.workflow
    async def flow(ctx: semel.Context, n: int = 1) -> str:
        mine = asyncio.create_task(ctx.execute_task(slow, n))
        if n == 1:
            await ctx.wait_signal("go")
            ctx.continue_as_new(2)
        return await mine

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("go")
        await eventually(lambda: is_run(handle, 2))
        goes_on.set()
        assert await handle.result(timeout="60s") == "slow 2"


async def is_run(handle: semel.Handle[object], n: int) -> bool:
    history = await handle.history()
    return bool(history) and history[0].name == f"run {n}" and await handle.status() == "waiting"


async def test_a_key_seen_before_is_seen_after(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, heard: list[str]) -> list[str]:
        word = await ctx.wait_signal("word")
        if word != "end":
            ctx.continue_as_new([*heard, word])
        return heard

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, [], workflow_id="k")
        for _ in range(3):
            await handle.signal("word", "a", dedup_key="a")
            await waits(handle)
            await handle.signal("word", "b", dedup_key="b")
        await handle.signal("word", "end")
        assert await handle.result(timeout="60s") == ["a", "b"]


async def test_its_time_limit_is_for_all_runs_together(world: World) -> None:
    app = world.app()

    @app.workflow(timeout="1h")
    async def flow(ctx: semel.Context, n: int = 0) -> None:
        await ctx.wait_signal("go")
        ctx.continue_as_new(n + 1)

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await world.advance("40m")
        await handle.signal("go")
        await eventually(lambda: is_run(handle, 2))
        await world.advance("21m")
        assert await ended(handle) == "timed_out"


async def test_one_that_has_continued_and_is_cancelled_still_cleans_up(world: World) -> None:
    app, did = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context, n: int = 1) -> None:
        if n == 1:
            ctx.continue_as_new(2)
        try:
            await asyncio.sleep(3600)
        finally:
            await ctx.step(did.append, "cleaned up")

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: is_run(handle, 2))
        await handle.cancel()
        assert await ended(handle) == "cancelled"
    assert did == ["cleaned up"]


async def test_new_input_that_does_not_fit_fails_it_where_it_is_given(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, n: int) -> str:
        try:
            ctx.continue_as_new(object())
        except semel.NotEncodable:
            return "refused"

    async with world.worker(app):
        assert await (await app.start_workflow(flow, 1, workflow_id="k")).result(timeout="60s") == "refused"


async def test_it_may_do_so_in_a_task_group(world: World) -> None:
    app, cleaned = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context, n: int = 0) -> int:
        async def other() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                cleaned.append(n)

        if n < 2:
            async with asyncio.TaskGroup() as group:
                group.create_task(other())
                await ctx.step(lambda: None, name="wait")
                ctx.continue_as_new(n + 1)
        return n

    async with world.worker(app):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == 2
    assert cleaned == [0, 1]


async def test_what_was_published_stays(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, run: int) -> None:
        ctx.publish(f"run-{run}", {"n": run})
        if run == 1:
            ctx.publish("state", "begun")
        if run < 3:
            ctx.continue_as_new(run + 1)
        await ctx.wait_signal("end")

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, 1, workflow_id="k"))
        assert [await handle.published(f"run-{n}") for n in (1, 2, 3)] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert await handle.published("state") == "begun"
        await handle.signal("end")
        await handle.result(timeout="60s")
    assert await handle.published("state") == "begun"
