"""A workflow runs under its id as a task does under its key: once, for everybody who asks."""

from datetime import timedelta

import pytest

import semel
from tests.world import World, ended, waits


async def test_the_id_is_required(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> None: ...

    with pytest.raises(TypeError, match="workflow_id"):
        await app.start_workflow(flow)  # type: ignore[call-overload]
    with pytest.raises(semel.InvalidKey):
        await app.start_workflow(flow, workflow_id=" ")


async def test_a_duplicate_joins_and_later_gets_the_result(world: World) -> None:
    app, runs = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context, n: int) -> tuple[int, str]:
        runs.append(n)
        await ctx.wait_signal("go")
        return n, "done"

    async with world.worker(app):
        first = await app.start_workflow(flow, 7, workflow_id="k")
        second = await app.start_workflow(flow.call(7), workflow_id="k")
        assert (first.duplicate, second.duplicate, second.id) == (False, True, first.id)
        await waits(first)
        await second.signal("go")
        assert await first.result(timeout="60s") == (7, "done")
        third = await app.start_workflow(flow, 7, workflow_id="k")
        assert third.duplicate
        assert await third.result(timeout="60s") == (7, "done")
    assert runs == [7]
    told = await app.explain("k", kind="workflow")
    assert {s.reason: s.count for s in told.suppressed} == {"joined": 1, "replayed": 1}
    assert (await app.find("k", kind="workflow")).id == first.id  # type: ignore[union-attr]


async def test_other_input_or_another_function_is_a_conflict(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, cents: int, order: str = "o") -> None: ...

    @app.workflow
    async def other(ctx: semel.Context, cents: int, order: str = "o") -> None: ...

    first = await app.start_workflow(flow, 9900, workflow_id="k")
    with pytest.raises(semel.KeyConflict, match="cents: 9900 -> 12000") as caught:
        await app.start_workflow(flow, 12000, workflow_id="k")
    assert (caught.value.existing_execution_id, caught.value.differences) == (first.id, {"cents": (9900, 12000)})
    with pytest.raises(semel.KeyConflict, match="another function"):
        await app.start_workflow(other, 9900, workflow_id="k")


async def test_a_task_and_a_workflow_may_have_the_same_key(world: World) -> None:
    app = world.app()

    @app.task
    async def task() -> str:
        return "task"

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        return "workflow"

    one, two = await app.enqueue(task, task_id="k"), await app.start_workflow(flow, workflow_id="k")
    async with world.worker(app):
        assert [await one.result(timeout="60s"), await two.result(timeout="60s")] == ["task", "workflow"]
    assert [(await one.describe()).kind, (await two.describe()).kind] == ["task", "workflow"]


async def test_raise_on_duplicate(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        return "done"

    first = await app.start_workflow(flow, workflow_id="k")
    with pytest.raises(semel.WorkflowAlreadyExists, match="]: workflow 'k' is already pending") as exists:
        await app.start_workflow(flow, workflow_id="k", on_duplicate="raise")
    assert exists.value.existing_execution_id == first.id
    async with world.worker(app):
        await first.result(timeout="60s")
    with pytest.raises(semel.WorkflowAlreadyCompleted, match="]: workflow 'k' completed at") as completed:
        await app.start_workflow(flow, workflow_id="k", on_duplicate="raise")
    assert completed.value.result == "done"


@pytest.mark.parametrize(
    ("reuse", "outcome", "again"),
    [
        ("failed_only", "completed", False), ("failed_only", "failed", True), ("reject", "completed", False),
        ("reject", "failed", False), ("always", "completed", True), ("always", "failed", True),
    ],
)  # fmt: skip
async def test_which_endings_give_the_id_back(world: World, reuse: str, outcome: str, again: bool) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, fails: bool) -> None:
        if fails:
            raise ValueError("as asked")

    async with world.worker(app):
        first = await app.start_workflow(flow, outcome == "failed", workflow_id="k")
        assert await ended(first) == outcome
        second = await app.start_workflow(flow, outcome == "failed", workflow_id="k", reuse=reuse)  # type: ignore[call-overload]
        assert (second.id != first.id, second.duplicate) == (again, not again)
        if again:
            assert await ended(second) == outcome
            assert (await second.describe()).previous_id == first.id


async def test_one_that_failed_frees_its_id_and_shows_its_error(world: World) -> None:
    app, fails = world.app(), [True]

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        if fails:
            raise LookupError("nothing there")
        return "found"

    async with world.worker(app):
        first = await app.start_workflow(flow, workflow_id="k")
        with pytest.raises(semel.ExecutionFailed, match="nothing there") as caught:
            await first.result(timeout="60s")
        assert caught.value.error_type == "LookupError"
        assert "raise LookupError" in caught.value.traceback
        fails.clear()
        second = await app.start_workflow(flow, workflow_id="k")
        assert await second.result(timeout="60s") == "found"
    assert [e.id for e in (await app.explain("k", kind="workflow")).executions] == [second.id, first.id]


@pytest.mark.parametrize("how", ["delay", "run_at"])
async def test_it_may_begin_later(world: World, how: str) -> None:
    app, runs = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        runs.append(ctx.now())

    when = {"delay": "1h"} if how == "delay" else {"run_at": world.now() + timedelta(hours=1)}
    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k", **when)  # type: ignore[call-overload]
        await world.advance("59m")
        assert await handle.status() == "pending"
        assert runs == []
        await world.advance("2m")
        await handle.result(timeout="60s")
    assert len(runs) == 1


async def test_results_keep_their_types(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context, span: timedelta, pair: tuple[int, str]) -> dict[int, timedelta]:
        assert isinstance(span, timedelta)
        assert isinstance(pair, tuple)
        return {pair[0]: span * 2}

    async with world.worker(app):
        handle = await app.start_workflow(flow, timedelta(hours=1), (3, "x"), workflow_id="k")
        assert await handle.result(timeout="60s") == {3: timedelta(hours=2)}


async def test_none_is_a_result_and_one_that_cannot_be_stored_is_a_failure(world: World) -> None:
    app = world.app()

    @app.workflow
    async def nothing(ctx: semel.Context) -> None: ...

    @app.workflow
    async def strange(ctx: semel.Context) -> object:
        return object()

    async with world.worker(app):
        assert await (await app.start_workflow(nothing, workflow_id="a")).result(timeout="60s") is None
        handle = await app.start_workflow(strange, workflow_id="b")
        assert await ended(handle) == "failed"
        assert "NotEncodable" in (await handle.describe()).error.type  # type: ignore[union-attr]


async def test_leaving_python_ends_the_workflow_and_not_the_worker(world: World) -> None:
    app = world.app()

    @app.workflow
    async def leaves(ctx: semel.Context) -> None:
        raise SystemExit(3)

    async with world.worker(app) as worker:
        handle = await app.start_workflow(leaves, workflow_id="k")
        assert await ended(handle) == "failed"
        assert (await handle.describe()).error.type == "SystemExit"  # type: ignore[union-attr]
        assert worker.healthy
