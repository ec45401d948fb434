"""What others have joined is theirs too: it goes on when the workflow that asked for it stops wanting it."""

import asyncio

import pytest

import semel
from tests.world import World, waits


async def test_the_error_of_a_joined_one_names_the_one_that_failed(world: World) -> None:
    app = world.app()
    fail = asyncio.Event()

    @app.task(retry=1)
    async def work() -> None:
        await fail.wait()
        raise LookupError("gone")

    @app.workflow
    async def flow(ctx: semel.Context, n: int) -> tuple[str, str]:
        try:
            await ctx.execute_task(work, task_id="shared")
        except semel.TaskFailed as error:
            return error.execution_id, error.message
        return "", ""

    async with world.worker(app, cached_workflows=0):
        flows = [await waits(await app.start_workflow(flow, n, workflow_id=f"w{n}")) for n in range(2)]
        fail.set()
        found = await app.find("shared")
        assert found is not None
        for handle in flows:
            id_, message = await handle.result("20s")
            assert id_ == found.id
            assert f"semel redrive {found.id}" in message
            refs = {event.ref for event in await handle.history() if event.kind == "task" and event.ref}
            assert refs == {found.id}


@pytest.mark.parametrize("kind", ["task", "workflow"])
async def test_a_conflict_in_a_workflow_tells_as_much_as_outside(world: World, kind: str) -> None:
    app = world.app()

    @app.task
    async def work(cents: int, to: str = "a") -> None: ...

    @app.workflow
    async def child(ctx: semel.Context, cents: int, to: str = "a") -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context, kind: str) -> tuple[str, str, list[tuple[str, int, int]], str]:
        try:
            if kind == "task":
                await ctx.execute_task(work, 120, task_id="k")
            else:
                await ctx.start_workflow(child, 120, workflow_id="k")
        except semel.KeyConflict as error:
            found = [(name, old, new) for name, (old, new) in error.differences.items()]
            await ctx.sleep(0.01)  # and it is the same when the journal is read again
            return error.existing_execution_id, str(error.status), found, error.message
        return "", "", [], ""

    async with world.worker(app, cached_workflows=0):
        if kind == "task":
            held: semel.Handle[None] = await app.enqueue(work, 99, task_id="k")
        else:
            held = await app.start_workflow(child, 99, workflow_id="k")
        await held.result("20s")
        with pytest.raises(semel.KeyConflict) as outside:
            await (app.enqueue(work, 120, task_id="k") if kind == "task" else
                   app.start_workflow(child, 120, workflow_id="k"))  # fmt: skip
        handle = await app.start_workflow(flow, kind, workflow_id="w")
        id_, status, found, message = await handle.result("20s")
    assert (id_, status, found) == (held.id, "completed", [("cents", 99, 120)])
    assert message == outside.value.message
