"""What a workflow shows of itself, and what it is given: values, words to find it by, time, dice."""

import asyncio
import pathlib
import uuid

import pytest

import semel
from tests.world import World, eventually, waits


async def test_published_values_can_be_read_at_any_time(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        ctx.publish("progress", 0)
        ctx.publish("progress", {"done": 1})
        ctx.publish("other", [1, None])
        await ctx.wait_signal("go")
        ctx.publish("progress", {"done": 2})

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        assert await handle.published("progress") == {"done": 1}
        assert await handle.published("other") == [1, None]
        assert await handle.published("nothing") is None
        assert await handle.published("nothing", "default") == "default"
        await handle.signal("go")
        await handle.result(timeout="60s")
        assert await handle.published("progress") == {"done": 2}


async def test_an_empty_value_is_published_like_any_other(world: World) -> None:
    app = world.app()
    empty = {"none": None, "list": [], "object": {}, "text": "", "number": 0, "truth": False}

    @app.workflow
    async def flow(ctx: semel.Context, round: int = 0) -> None:
        if round == 0:
            for name, value in empty.items():
                ctx.publish(f"first-{name}", value)
                ctx.publish(f"last-{name}", "full")
            await ctx.wait_signal("go")
            for name, value in empty.items():
                ctx.publish(f"last-{name}", value)
            ctx.continue_as_new(1)
        await ctx.step(lambda: None, name="between")
        await ctx.wait_signal("end")

    async def values(handle: semel.Handle[None], when: str) -> dict[str, object]:
        return {name: await handle.published(f"{when}-{name}", "missing") for name in empty}

    async with world.worker(app, cached_workflows=0):
        old = await waits(await app.start_workflow(flow, workflow_id="k"))
        assert await values(old, "first") == empty
        await old.signal("go")

        async def went_on() -> bool:
            return await values(old, "last") == empty and await old.status() == "waiting"

        await eventually(went_on)
        assert await values(old, "first") == empty
        new = await old.reset("between")
        await new.signal("end")
        await new.result(timeout="60s")
        for when in ("first", "last"):
            assert await values(new, when) == empty


async def test_nothing_can_be_read_of_one_that_is_not_there(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> None: ...

    handle = await app.start_workflow(flow, workflow_id="k")
    assert (await handle.published("x", 1), await handle.attributes()) == (1, {})
    handle.id = "0" * 32
    for ask in (handle.published("x", 1), handle.attributes(), handle.history(), handle.export()):
        with pytest.raises(semel.NotFound):
            await ask


async def test_a_task_has_no_history(world: World) -> None:
    app = world.app()

    @app.task
    async def plain() -> None: ...

    handle = await app.enqueue(plain)
    for ask in (handle.history(), handle.export()):
        with pytest.raises(semel.InvalidValue, match="is a task, and a task has no history"):
            await ask


async def test_search_attributes_find_it(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, scope: str, level: str) -> None:
        ctx.search_attributes["scope"] = "unknown"
        ctx.search_attributes["scope"] = scope
        ctx.search_attributes["level"] = level
        ctx.search_attributes["gone"] = "soon"
        assert dict(ctx.search_attributes) == {"scope": scope, "level": level, "gone": "soon"}
        await ctx.wait_signal("go")
        del ctx.search_attributes["gone"]
        assert len(ctx.search_attributes) == 2
        assert ctx.search_attributes["scope"] == scope

    async with world.worker(app, cached_workflows=0):
        eu, us = [
            await waits(await app.start_workflow(flow, scope, level, workflow_id=scope))
            for scope, level in (("eu", "high"), ("us", "high"))
        ]
        assert await eu.attributes() == {"scope": "eu", "level": "high", "gone": "soon"}
        await world.listed()
        assert [e.id for e in await app.list(attributes={"scope": "eu"})] == [eu.id]
        assert [e.id for e in await app.list(attributes={"level": "high"})] == [us.id, eu.id]
        assert [e.id for e in await app.list(attributes={"level": "high"}, limit=1, before=us.id)] == [eu.id]
        assert [e.id for e in await app.list(attributes={"level": "high", "scope": "us"})] == [us.id]
        assert await app.list(attributes={"scope": "asia"}) == []
        await eu.signal("go")
        await eu.result(timeout="60s")
        assert await eu.attributes() == {"scope": "eu", "level": "high"}
        assert [e.id for e in await app.list(attributes={"level": "high"}, status="completed")] == [eu.id]
        assert [e.id for e in await app.list(attributes={"level": "high"}, status="waiting")] == [us.id]


@pytest.mark.parametrize("value", ["", "x" * 256, "a\0b", 3])
async def test_an_attribute_is_a_short_text(world: World, value: object) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            ctx.search_attributes["scope"] = value  # type: ignore[assignment]
        except semel.InputError:
            return "refused"
        return "let in"

    async with world.worker(app):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == "refused"


async def test_time_and_dice_are_the_same_from_the_journal(world: World) -> None:
    app, seen = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        mine = [ctx.now(), ctx.uuid4(), ctx.random.random(), ctx.random.sample(range(100), 5), ctx.run_id]
        await ctx.wait_signal("go")
        mine.append(ctx.now())
        await ctx.wait_signal("go")
        seen.append([*mine, ctx.now(), ctx.uuid4()])
        await ctx.wait_signal("go")

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        for _ in range(2):
            await world.advance("1h")
            await handle.signal("go")
            await asyncio.sleep(0)
            await waits(handle)
    async with world.worker(app, cached_workflows=0):  # nobody has it in memory here
        await world.advance("1h")
        await handle.signal("go")
        await handle.result(timeout="60s")
        other = await app.start_workflow(flow, workflow_id="other")
        for _ in range(3):
            await other.signal("go")
        await other.result(timeout="60s")
    assert len(seen) >= 2
    assert seen[0] == seen[1], "a replay saw the same"
    first, last = seen[0], seen[-1]
    assert first[0] < first[5] < first[6]
    assert isinstance(first[1], uuid.UUID)
    assert first[1].version == 4
    assert first[1] != last[1], "another workflow has other dice"
    assert first[4] == f"{handle.id}.1"


async def test_one_that_no_schedule_started_has_no_time_of_a_schedule(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[bool]:
        return [ctx.scheduled_for is None, ctx.generation == 0, ctx.parent_workflow_id is None, ctx.workflow_id == "k"]

    async with world.worker(app):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == [True] * 4


async def test_nobody_else_acts_for_it(world: World) -> None:
    """What a step asks for would be missing when the workflow is replayed, where the step is not run again."""
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        async def publishes() -> None:
            ctx.publish("progress", 1)

        async def throws_dice() -> float:
            return ctx.random.random()

        async def asks() -> None:
            await ctx.step(lambda: 1, name="inner")

        def names() -> None:
            ctx.search_attributes["a"] = "b"

        said = []
        for step in (publishes, throws_dice, asks, names):
            with pytest.raises(semel.ExecutionFailed) as caught:
                await ctx.step(step)
            said.append(f"{caught.value.error_type} {caught.value.error_message}")
        await ctx.wait_signal("go")
        return said

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.signal("go")
        said = await handle.result(timeout="60s")
    assert all("InvalidValue" in one and "outside of the code of workflow 'k'" in one for one in said), said
    assert await handle.published("progress") is None
    assert await handle.attributes() == {}


@pytest.mark.parametrize("face", ["async", "sync"])
async def test_the_app_is_not_for_its_code(world: World, face: str) -> None:
    app = world.app()

    @app.task
    async def job() -> None:
        return None

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            if face == "sync":
                app.sync.enqueue(job)
            else:
                await app.enqueue(job)
        except semel.Forbidden as error:
            return str(error)
        return "asked"

    if face == "sync":
        await asyncio.to_thread(app.sync.list)  # its loop runs
    async with world.worker(app):
        said = await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
    assert "ctx.enqueue" in said
    assert f"{pathlib.Path(__file__)}:" in said
    assert await app.list(kind="task") == []
    if face == "sync":
        await asyncio.to_thread(app.sync.close)
