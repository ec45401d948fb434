"""Cancelling reaches the code, which may clean up; terminating does not, and is at once."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import semel
from semel import Status
from semel.engines.journal.control import cancel
from semel.engines.journal.script import ConnectionRole, Row, Script, procedure
from tests.world import World, ended, eventually, waits


@pytest.mark.parametrize("cached", [0, 1000])
async def test_it_reaches_finally_where_the_code_may_clean_up(world: World, cached: int) -> None:
    app, did = world.app(), []

    @app.task
    async def undo(what: str) -> str:
        did.append(what)
        return what

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await ctx.execute_task(undo, "the order")
            await ctx.step(did.append, "the rest")

    async with world.worker(app, cached_workflows=cached):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        assert await handle.cancel() is Status.RUNNING
        assert await ended(handle) == "cancelled"
    assert did == ["the order", "the rest"]
    assert await handle.cancel() is Status.CANCELLED


async def test_asked_again_it_still_cleans_up_in_peace(world: World) -> None:
    app, did = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(60)
            did.append("cleaned up")

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        for _ in range(3):
            assert await handle.cancel() is Status.RUNNING
            await waits(handle)
        await world.advance("61s")
        assert await ended(handle) == "cancelled"
    assert did == ["cleaned up"]


@pytest.mark.parametrize("first", ["cancelled", "timed_out"])
async def test_cancelled_and_out_of_time_it_cleans_up_once_and_in_peace(world: World, first: str) -> None:
    app, did = world.app(), []

    @app.workflow(timeout="1h")
    async def flow(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(7200)
        finally:
            did.append("began")
            await asyncio.sleep(7200)
            did.append("cleaned up")

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        if first == "cancelled":
            await handle.cancel()
        else:
            await world.advance("61m")
        await eventually(lambda: did)
        await waits(handle)
        if first == "cancelled":
            await world.advance("61m")
        else:
            await handle.cancel()
        await waits(handle)
        await world.advance("2h")
        assert await ended(handle) == first
    assert did == ["began", "cleaned up"]


@pytest.mark.parametrize("again", [False, True])
async def test_one_that_has_begun_cleans_up_though_nobody_serves_it_now(world: World, again: bool) -> None:
    """Something has come for it, so that it waits for a worker as one does that has not begun."""
    app, did = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context, run: int) -> None:
        try:
            await ctx.wait_signal("first")
            if run < 2 and again:
                ctx.continue_as_new(run + 1)
            await ctx.wait_signal("never")
        finally:
            await ctx.step(did.append, run)

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, 1, workflow_id="k"))
        if again:
            await handle.signal("first")
            await eventually(lambda: did == [1])
            await waits(handle)
    await handle.signal("first")
    assert await handle.cancel() is Status.RUNNING
    async with world.worker(app):
        assert await ended(handle) == "cancelled"
    assert did == ([1, 2] if again else [1])


async def test_code_may_turn_it_down(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "finished anyway"
        return ""

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await handle.cancel()
        assert await handle.result(timeout="60s") == "finished anyway"


@pytest.mark.parametrize("begun", [False, True])
async def test_the_task_it_waits_for_is_cancelled_too(world: World, begun: bool) -> None:
    app, heard = world.app(), []

    @app.task(queue="work")
    async def work() -> None:
        heard.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.execute_task(work, task_id="t")

    async with world.worker(app, queues=None if begun else ["default"], cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        task = await eventually(lambda: app.find("t"))
        if begun:
            await eventually(lambda: heard)
        await handle.cancel()
        assert await ended(handle) == "cancelled"
        assert await ended(task) == "cancelled"
    assert heard == (["began", "cancelled"] if begun else [])


async def test_a_task_that_another_workflow_waits_for_goes_on(world: World) -> None:
    app, goes_on = world.app(), asyncio.Event()

    @app.task
    async def work() -> str:
        await goes_on.wait()
        return "done"

    @app.workflow
    async def flow(ctx: semel.Context, n: int) -> str:
        return await ctx.execute_task(work, task_id="t")

    async with world.worker(app, cached_workflows=0):
        first = await waits(await app.start_workflow(flow, 1, workflow_id="k1"))
        second = await waits(await app.start_workflow(flow, 2, workflow_id="k2"))
        await first.cancel()
        assert await ended(first) == "cancelled"
        goes_on.set()
        assert await second.result(timeout="60s") == "done"


async def test_one_whose_first_step_runs_cleans_up(world: World) -> None:
    app, did, may_end = world.app(), list[str](), asyncio.Event()

    async def book() -> None:
        did.append("booked")
        await may_end.wait()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        try:
            await ctx.step(book)
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await ctx.step(did.append, "undone", name="undo")
            raise

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: did)
        assert await handle.cancel() is Status.RUNNING
        may_end.set()
        assert await ended(handle) == "cancelled"
    assert did == ["booked", "undone"]


@pytest.mark.journal("between two statements of a transaction")
async def test_one_that_begins_while_it_is_cancelled_cleans_up(world: World) -> None:
    app, did = world.app(), list[str]()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        try:
            await ctx.step(did.append, "booked", name="book")
            await ctx.wait_signal("never")
        except asyncio.CancelledError:
            await ctx.step(did.append, "undone", name="undo")
            raise

    async with world.worker(app) as worker:
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
    await handle.signal("other")  # now it waits for a worker, as one does that has not begun
    async with world.worker(world.app()) as worker:
        assert await worker.store.run(cancel_by_old_news, worker.namespace, handle.id) is Status.RUNNING
    async with world.worker(app):
        assert await ended(handle) == "cancelled"
    assert did == ["booked", "undone"]


@procedure(ConnectionRole.CONTROL)
def cancel_by_old_news(namespace: str, id_: str) -> Script[Status | None]:
    """Cancel what had not begun when it was looked at, and has begun by the next statement."""
    script = cancel.script(namespace, id_)
    kind, status, flows, _ = (yield next(script))[0]
    found: list[Row] = [(kind, status, flows, False)]
    while True:
        try:
            statement = script.send(found)
        except StopIteration as end:
            return end.value
        found = yield statement


async def test_one_that_has_not_begun_never_does(world: World) -> None:
    app, runs = world.app(), []

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        runs.append(1)

    handles = [
        await app.start_workflow(flow, workflow_id="now"),
        await app.start_workflow(flow, workflow_id="later", delay="1h"),
    ]
    assert [await handle.cancel() for handle in handles] == [Status.CANCELLED] * 2
    async with world.worker(app):
        await world.advance("2h")
        await (await app.start_workflow(flow, workflow_id="other")).result(timeout="60s")
    assert runs == [1]
    assert await world.left() == 0


async def test_cancelled_and_completed_at_the_same_time_it_is_one_of_both(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        await ctx.step(asyncio.sleep, 0)
        return "done"

    async with world.worker(app):
        handles = [await app.start_workflow(flow, workflow_id=f"k{n}") for n in range(20)]
        answers = await asyncio.gather(*(handle.cancel() for handle in handles))
        endings = [await ended(handle) for handle in handles]
    assert set(endings) <= {"cancelled", "completed"}
    for answer, ending in zip(answers, endings, strict=True):
        assert answer is ending or answer is Status.RUNNING
    assert await world.left() == 0


async def test_a_step_that_runs_is_stopped(world: World) -> None:
    app, heard = world.app(), []

    async def hang() -> None:
        heard.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("stopped")
            raise

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.step(hang)

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: heard)
        await handle.cancel()
        assert await ended(handle) == "cancelled"
        await eventually(lambda: heard == ["began", "stopped"])


@pytest.mark.parametrize("state", ["asleep", "running", "not begun", "delayed"])
async def test_terminating_is_at_once(world: World, state: str) -> None:
    app, heard = world.app(), []

    async def hang() -> None:
        heard.append("began")
        await asyncio.Event().wait()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        try:
            await (ctx.step(hang) if state == "running" else asyncio.sleep(3600))
        except asyncio.CancelledError:
            heard.append("cancelled")

    async with world.worker(app, grace=0) if state in ("asleep", "running") else app:
        handle = await app.start_workflow(flow, workflow_id="k", delay="1h" if state == "delayed" else None)
        if state == "asleep":
            await waits(handle)
        elif state == "running":
            await eventually(lambda: heard)
        assert await handle.terminate("enough") is Status.CANCELLED
        execution = await handle.describe()
        assert (execution.status, execution.error.message) == ("cancelled", "enough")  # type: ignore[union-attr]
        with pytest.raises(semel.ExecutionCancelled):
            await handle.result(timeout="60s")
        if state == "running":
            await eventually(lambda: not world._workers[0].busy)
        assert await handle.terminate() is Status.CANCELLED
        assert await world.left() == 0
    assert "cancelled" not in heard


@pytest.mark.parametrize("why", ["\ud800", None, 5, "x" * 1001], ids=["surrogate", "none", "number", "long"])
async def test_a_reason_is_text(world: World, why: Any) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> None: ...

    handle = await app.start_workflow(flow, workflow_id="k")
    with pytest.raises(semel.InvalidValue, match="why="):
        await handle.terminate(why)
    assert await handle.status() == "pending", "what is refused changes nothing"
    assert await handle.terminate("no budget: 5 € (ä)") is Status.CANCELLED
    error = (await handle.describe()).error
    assert error is not None
    assert error.message == "no budget: 5 € (ä)"


@pytest.mark.parametrize("used", [False, True], ids=["new keys", "used keys"])
@pytest.mark.parametrize("how", ["terminated", "completed", "failed", "cancelled", "timed_out"])
async def test_children_go_the_way_that_was_agreed(world: World, how: str, used: bool) -> None:
    app, ways = world.app(), ("abandon", "cancel", "terminate")

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(7200)
        finally:
            ctx.publish("heard", True)

    @app.workflow(timeout="1h")
    async def parent(ctx: semel.Context) -> None:
        for way in ways:
            await ctx.start_workflow(child, workflow_id=way, on_parent_close=way)  # type: ignore[call-overload]
        await ctx.wait_signal("end")
        if how == "failed":
            raise ValueError

    before = [await app.start_workflow(child, workflow_id=way) for way in ways if used]
    for one in before:
        assert await one.cancel() is Status.CANCELLED
    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, workflow_id="p")
        children = {way: await waits(await begun(app, way, before)) for way in ways}
        await waits(handle)
        match how:
            case "terminated":
                await handle.terminate()
            case "cancelled":
                await handle.cancel()
            case "timed_out":
                await world.advance("61m")
            case _:
                await handle.signal("end")
        assert await ended(handle) == ("cancelled" if how == "terminated" else how)
        assert [await ended(children[way]) for way in ("cancel", "terminate")] == ["cancelled"] * 2
        assert await children["abandon"].status() == "waiting"
        assert await children["cancel"].published("heard") is True
        assert await children["terminate"].published("heard") is None


async def begun(app: semel.App, key: str, before: Sequence[semel.Handle[Any]]) -> semel.Handle[Any]:
    """The workflow that begins under a key, after others."""

    async def found() -> semel.Handle[Any] | None:
        handle = await app.find(key, kind="workflow")
        return None if handle is None or handle.id in [one.id for one in before] else handle

    return await eventually(found)


async def test_children_under_used_keys_go_with_what_their_parent_goes_on_as(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await asyncio.sleep(3600)

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        await ctx.start_workflow(child, workflow_id="c", on_parent_close="cancel")
        await ctx.step(lambda: None, name="mark")
        ctx.publish("marked", True)
        await ctx.wait_signal("end")

    before = await app.start_workflow(child, workflow_id="c")
    await before.cancel()
    async with world.worker(app):
        old = await app.start_workflow(parent, workflow_id="p")
        handle = await waits(await begun(app, "c", [before]))
        await eventually(lambda: old.published("marked"))  # it waits before too: for the start of its child
        await waits(old)
        new = await waits(await old.reset("mark"))
        assert await handle.status() == "waiting"
        await new.terminate()
        assert await ended(handle) == "cancelled"


async def test_children_go_with_what_their_parent_goes_on_as_before_a_worker_has_seen_it(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await asyncio.sleep(3600)

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        await ctx.start_workflow(child, workflow_id="c", on_parent_close="cancel")
        await ctx.step(lambda: None, name="mark")
        ctx.publish("marked", True)
        await ctx.wait_signal("end")

    async with world.worker(app):
        old = await app.start_workflow(parent, workflow_id="p")
        handle = await waits(await begun(app, "c", []))
        await eventually(lambda: old.published("marked"))
        await waits(old)
    again = await (await old.reset("mark")).reset("mark")  # the second one before the first was ever run
    await again.terminate()
    async with world.worker(app):
        assert await ended(handle) == "cancelled"


@pytest.mark.parametrize("other", ["workflow", "client"])
async def test_a_task_that_others_have_joined_is_not_stopped_by_one_who_gives_up(world: World, other: str) -> None:
    app = world.app()
    go_on = asyncio.Event()

    @app.task(retry=1)
    async def work() -> str:
        await go_on.wait()
        return "done"

    @app.workflow
    async def flow(ctx: semel.Context, patience: float) -> str:
        try:
            async with asyncio.timeout(patience):
                return await ctx.execute_task(work, task_id="shared")
        except TimeoutError:
            return "gave up"

    async with world.worker(app):
        first = await app.start_workflow(flow, 60.0, workflow_id="first")
        await eventually(lambda: app.find("shared"))
        if other == "client":
            joined = await app.enqueue(work, task_id="shared")
        else:
            joined = await waits(await app.start_workflow(flow, 3600.0, workflow_id="second"))
        await world.advance("61s")
        assert await first.result("60s") == "gave up"
        go_on.set()
        assert await joined.result("60s") == "done"
