"""What others have joined is theirs too: it goes on when the workflow that asked for it stops wanting it."""

import asyncio

import pytest

import semel
from tests.world import World, ended, eventually, waits


def two_kinds(app: semel.App) -> tuple[semel.Task[[], str], semel.Workflow[[], str], asyncio.Event]:
    """A task and a child that end when the event is set, or the signal comes."""
    go_on = asyncio.Event()

    @app.task(retry=1)
    async def work() -> str:
        await go_on.wait()
        return "done"

    @app.workflow
    async def child(ctx: semel.Context) -> str:
        return str(await ctx.wait_signal("go"))

    return work, child, go_on


async def joined(app: semel.App, key: str, kind: str = "workflow") -> bool:
    """Has anyone joined the child (or the task) under this key?"""
    told = await app.explain(key, kind=kind)
    return any(one.reason == "joined" for one in told.suppressed or ())


@pytest.mark.parametrize("kind", ["task", "workflow"])
async def test_a_client_that_joined_at_the_last_moment(world: World, kind: str) -> None:
    app = world.app()
    work, child, go_on = two_kinds(app)

    @app.workflow
    async def flow(ctx: semel.Context, kind: str) -> str:
        if kind == "task":
            return await ctx.execute_task(work, task_id="shared")
        return await ctx.execute_workflow(child, workflow_id="shared")

    async with world.worker(app):
        first = await app.start_workflow(flow, kind, workflow_id="first")
        await eventually(lambda: app.find("shared", kind=kind))
        if kind == "task":
            joined = await app.enqueue(work, task_id="shared")
        else:
            joined = await app.start_workflow(child, workflow_id="shared")
        await first.cancel()
        assert joined.duplicate
        assert await ended(first) == "cancelled"
        go_on.set()
        if kind == "workflow":
            await joined.signal("go", "done")
        assert await joined.result("60s") == "done"


@pytest.mark.journal
async def test_who_joins_while_it_is_given_up_has_it_or_a_new_one(world: World) -> None:
    app = world.app()

    @app.task(queue="nobody")
    async def work() -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context, key: str) -> None:
        await ctx.execute_task(work, task_id=key)

    async with world.worker(app, queues=["default"]):
        keys = [f"shared {n}" for n in range(30)]
        flows = [await waits(await app.start_workflow(flow, key, workflow_id=key)) for key in keys]
        joining = [app.enqueue(work, task_id=key) for key in keys]
        stopping = [handle.cancel() for handle in flows]
        joined = await asyncio.gather(*joining[:10], *stopping, *joining[10:])
        assert {await ended(handle) for handle in flows} == {"cancelled"}
        handles = [found for found in joined if isinstance(found, semel.Handle)]
        assert [await handle.status() for handle in handles] == ["pending"] * len(keys)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("how", ["completed", "cancelled", "terminated"])
async def test_a_child_that_another_parent_waits_for(world: World, hard: bool, how: str) -> None:
    app = world.app()
    _, child, _ = two_kinds(app)

    @app.workflow
    async def first(ctx: semel.Context, hard: bool) -> None:
        for key in ("c", "alone"):
            await ctx.start_workflow(child, workflow_id=key, on_parent_close="terminate" if hard else "cancel")
        await ctx.wait_signal("end")

    @app.workflow
    async def second(ctx: semel.Context) -> str:
        return await ctx.execute_workflow(child, workflow_id="c")

    async with world.worker(app):
        parent = await waits(await app.start_workflow(first, hard, workflow_id="first"), "end")
        other = await app.start_workflow(second, workflow_id="second")
        await eventually(lambda: joined(app, "c"))
        match how:
            case "terminated":
                await parent.terminate()
            case "cancelled":
                await parent.cancel()
            case _:
                await parent.signal("end")
        await ended(parent)
        alone = await app.find("alone", kind="workflow")
        assert alone is not None
        assert await ended(alone) == "cancelled"
        found = await app.find("c", kind="workflow")
        assert found is not None
        await found.signal("go", "done")
        assert await other.result("60s") == "done"


async def test_a_child_that_its_own_parent_asked_for_twice_ends_with_it(world: World) -> None:
    app = world.app()
    _, child, _ = two_kinds(app)

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        for _ in range(2):
            await ctx.start_workflow(child, workflow_id="c", on_parent_close="cancel")
        await ctx.wait_signal("end")

    async with world.worker(app):
        handle = await waits(await app.start_workflow(parent, workflow_id="p"), "end")
        await handle.signal("end")
        found = await app.find("c", kind="workflow")
        assert found is not None
        assert await ended(found) == "cancelled"


@pytest.mark.parametrize("how", ["cancel", "timeout"])
async def test_an_abandoned_child_goes_on_when_nobody_waits_for_it_any_more(world: World, how: str) -> None:
    app = world.app()
    _, child, _ = two_kinds(app)

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        async with asyncio.timeout(60):
            await ctx.execute_workflow(child, workflow_id="c", on_parent_close="abandon")

    async with world.worker(app):
        handle = await waits(await app.start_workflow(parent, workflow_id="p"))
        found = await eventually(lambda: app.find("c", kind="workflow"))
        await (handle.cancel() if how == "cancel" else world.advance("61s"))
        assert await ended(handle) == ("cancelled" if how == "cancel" else "failed")
        await found.signal("go", "done")
        assert await found.result("60s") == "done"


@pytest.mark.parametrize(
    ("kind", "how"),
    [("task", "cancel"), ("task", "timeout"), ("workflow", "cancel"), ("workflow", "timeout"), ("workflow", "end")],
)
async def test_what_follows_one_that_did_not_complete_is_given_up_with_its_workflow(
    world: World, kind: str, how: str
) -> None:
    app = world.app()
    work, child, _ = two_kinds(app)

    @app.workflow
    async def parent(ctx: semel.Context, kind: str, how: str) -> None:
        async with asyncio.timeout(60):
            if kind == "task":
                await ctx.execute_task(work, task_id="k")
            elif how != "end":
                await ctx.execute_workflow(child, workflow_id="k")
            else:
                await ctx.start_workflow(child, workflow_id="k", on_parent_close="cancel")

    async def ask() -> semel.Handle[str]:
        return await (app.enqueue(work, task_id="k") if kind == "task" else app.start_workflow(child, workflow_id="k"))

    before = await ask()
    assert await before.cancel() == "cancelled"

    async def another() -> semel.Handle[object] | None:
        found = await app.find("k", kind=kind)
        return None if found is None or found.id == before.id else found

    async with world.worker(app):
        handle = await app.start_workflow(parent, kind, how, workflow_id="p")
        found = await eventually(another)
        if how == "cancel":
            await handle.cancel()
        elif how == "timeout":
            await world.advance("61s")
        assert await ended(handle) == {"cancel": "cancelled", "timeout": "failed", "end": "completed"}[how]
        assert await ended(found) == "cancelled"


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
        except semel.ExecutionFailed as error:
            return error.execution_id, error.message
        return "", ""

    async with world.worker(app, cached_workflows=0):
        flows = [await waits(await app.start_workflow(flow, n, workflow_id=f"w{n}")) for n in range(2)]
        await eventually(lambda: joined(app, "shared", "task"))  # a cluster says "waits" while it still starts the task
        fail.set()
        found = await app.find("shared")
        assert found is not None
        for handle in flows:
            id_, message = await handle.result("60s")
            assert id_ == found.id
            assert found.id in message
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
        await held.result("60s")
        with pytest.raises(semel.KeyConflict) as outside:
            await (app.enqueue(work, 120, task_id="k") if kind == "task" else
                   app.start_workflow(child, 120, workflow_id="k"))  # fmt: skip
        handle = await app.start_workflow(flow, kind, workflow_id="w")
        id_, status, found, message = await handle.result("60s")
    assert (id_, status, found) == (held.id, "completed", [("cents", 99, 120)])
    assert message == outside.value.message


async def test_one_that_another_part_of_the_workflow_waits_for_is_not_stopped(world: World) -> None:
    app = world.app()
    work, _, go_on = two_kinds(app)

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        first, second = (asyncio.create_task(ctx.execute_task(work, task_id="shared")) for _ in range(2))
        await ctx.wait_signal("enough")
        first.cancel()
        ctx.publish("state", "waits")
        return await second

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="w"))
        await eventually(lambda: app.find("shared"))
        await handle.signal("enough")
        await eventually(lambda: handle.published("state"))
        await waits(handle)
        go_on.set()
        assert await handle.result("60s") == "done"


async def test_one_that_is_asked_for_again_at_once_is_not_stopped(world: World) -> None:
    app = world.app()
    work, _, go_on = two_kinds(app)

    @app.workflow
    async def flow(ctx: semel.Context, tries: int) -> str:
        for _ in range(tries):
            try:
                async with asyncio.timeout(60):
                    return await ctx.execute_task(work, task_id=f"shared {tries}")
            except TimeoutError:
                pass
        await ctx.wait_signal("end")
        return "gave up"

    async with world.worker(app, cached_workflows=0):
        patient = await waits(await app.start_workflow(flow, 1000, workflow_id="patient"))
        await waits(await app.start_workflow(flow, 2, workflow_id="hasty"))
        stopped = await eventually(lambda: app.find("shared 2"))
        assert await world.advance_until(ended(stopped), "61s") == "cancelled"  # it is the workflow's own, still
        go_on.set()
        assert await patient.result("60s") == "done"
        found = await app.find("shared 1000")
        assert found is not None
        assert (await found.describe()).previous_id is None


@pytest.mark.parametrize("verb", ["execute", "start"])
async def test_a_workflow_that_asks_for_itself_is_told_so(world: World, verb: str) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, verb: str) -> None:
        if verb == "execute":
            await ctx.execute_workflow(flow, verb, workflow_id=ctx.workflow_id)
        else:
            await ctx.start_workflow(flow, verb, workflow_id=ctx.workflow_id)

    async with world.worker(app):
        handle = await app.start_workflow(flow, verb, workflow_id="w")
        with pytest.raises(semel.ExecutionFailed, match="this very workflow") as failed:
            await handle.result("60s")
    assert failed.value.error_type == "semel.InvalidValue"
