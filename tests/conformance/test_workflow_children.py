"""A workflow may start others: it waits for them, signals them, cancels them, and hears how they end."""

import asyncio

import semel
from tests.world import World, ended, eventually, waits


async def test_one_that_it_waits_for(world: World) -> None:
    app, seen = world.app(), []

    @app.workflow(queue="children")
    async def child(ctx: semel.Context, n: int) -> tuple[int, str]:
        seen.append((ctx.workflow_id, ctx.parent_workflow_id))
        await ctx.step(lambda: None)
        return n * 2, "ok"

    @app.workflow
    async def parent(ctx: semel.Context) -> list[tuple[int, str]]:
        return list(await asyncio.gather(*(ctx.execute_workflow(child, n, workflow_id=f"c{n}") for n in range(3))))

    async with world.worker(app, cached_workflows=1000):
        handle = await app.start_workflow(parent, workflow_id="p")
        assert await handle.result(timeout="60s") == [(0, "ok"), (2, "ok"), (4, "ok")]
    assert sorted(set(seen)) == [(f"c{n}", handle.id) for n in range(3)]
    found = await app.find("c1", kind="workflow")
    assert found is not None
    execution = await found.describe()
    assert (execution.parent_id, execution.queue) == (handle.id, "children")


async def test_one_that_it_starts_and_talks_to(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> list[str]:
        return [await ctx.wait_signal("word") for _ in range(2)]

    @app.workflow
    async def parent(ctx: semel.Context) -> list[str]:
        one = await ctx.start_workflow(child, workflow_id="c")
        await one.signal("word", "first", dedup_key="k")
        await one.signal("word", "first", dedup_key="k")
        await one.signal("word", "second")
        return await one.result()

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, workflow_id="p")
        assert await handle.result(timeout="60s") == ["first", "second"]


async def test_one_that_it_cancels(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await asyncio.sleep(3600)

    @app.workflow
    async def parent(ctx: semel.Context) -> str:
        one = await ctx.start_workflow(child, workflow_id="c")
        await one.cancel()
        try:
            await one.result()
        except semel.ExecutionCancelled:
            return "cancelled"
        return ""

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, workflow_id="p")
        assert await handle.result(timeout="60s") == "cancelled"


async def test_its_failure_is_raised_in_the_parent(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        raise LookupError("gone")

    @app.workflow
    async def parent(ctx: semel.Context) -> list[str]:
        heard = []
        one = await ctx.start_workflow(child, workflow_id="c")
        for wait in (one.result, lambda: ctx.execute_workflow(child, workflow_id="d")):
            try:
                await wait()
            except semel.ExecutionFailed as error:
                heard.append(f"{error.error_type}: {error.error_message}")
        return heard

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, workflow_id="p")
        assert await handle.result(timeout="60s") == ["LookupError: gone"] * 2


async def test_the_same_id_is_the_same_child(world: World) -> None:
    app, runs = world.app(), []

    async def note() -> None:
        runs.append(1)

    @app.workflow
    async def child(ctx: semel.Context) -> str:
        await ctx.step(note)
        return await ctx.wait_signal("go")

    @app.workflow
    async def parent(ctx: semel.Context, n: int) -> tuple[str, str]:
        one = await ctx.start_workflow(child, workflow_id="c")
        return one.id, await ctx.execute_workflow(child, workflow_id="c")

    async with world.worker(app, cached_workflows=0):
        mine = await waits(await app.start_workflow(child, workflow_id="c"))
        parents = [await waits(await app.start_workflow(parent, n, workflow_id=f"p{n}")) for n in range(2)]
        await eventually(lambda: all_wait(parents))
        await mine.signal("go", "on")
        assert [await one.result(timeout="60s") for one in parents] == [(mine.id, "on")] * 2
        late = await app.start_workflow(parent, 3, workflow_id="p3")
        assert await late.result(timeout="60s") == (mine.id, "on"), "it had ended: replayed at once"
    assert runs == [1]


async def all_wait(handles: list[semel.Handle[object]]) -> bool:
    return {await one.status() for one in handles} == {"waiting"}


async def test_another_workflow_under_its_id_is_a_conflict(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context, n: int) -> None: ...

    @app.workflow
    async def parent(ctx: semel.Context) -> str:
        await ctx.execute_workflow(child, 1, workflow_id="c")
        try:
            await ctx.start_workflow(child, 2, workflow_id="c")
        except semel.KeyConflict as error:
            return error.message
        return ""

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, workflow_id="p")
        assert "other input" in await handle.result(timeout="60s")


async def test_a_parent_that_is_cancelled_cancels_the_child_it_waits_for(world: World) -> None:
    app, did = world.app(), []

    async def note(what: str) -> None:
        did.append(what)

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await ctx.step(note, "the child cleaned up")

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        await ctx.execute_workflow(child, workflow_id="c")

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, workflow_id="p")
        one = await waits(await eventually(lambda: app.find("c", kind="workflow")))
        await waits(handle)
        await handle.cancel()
        assert [await ended(handle), await ended(one)] == ["cancelled", "cancelled"]
    assert did == ["the child cleaned up"]


async def test_a_deep_family(world: World) -> None:
    app = world.app()

    @app.workflow
    async def factorial(ctx: semel.Context, n: int) -> int:
        return 1 if n == 0 else n * await ctx.execute_workflow(factorial, n - 1, workflow_id=f"{n - 1}!")

    async with world.worker(app, cached_workflows=0):
        assert await (await app.start_workflow(factorial, 8, workflow_id="8!")).result(timeout="60s") == 40320
