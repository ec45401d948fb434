"""A workflow can go back to a step: what was recorded before it is kept, what came after it happens anew."""

from __future__ import annotations

import pytest

import semel
from semel.testing import Fault, Mode
from tests.world import World, ended, eventually, waits


def broken(world: World, ran: list[str], *, fixed: bool = False) -> tuple[semel.App, semel.Workflow[..., str]]:
    """Three steps, of which the second fails until it is mended."""
    app = world.app()

    def pack(order: str) -> str:
        ran.append(f"pack {semel.effect_key('pack')}")
        return f"packed {order}"

    def ship(parcel: str) -> str:
        ran.append(f"ship {semel.effect_key('ship')}")
        if not fixed:
            raise ValueError("no stamps")
        return f"shipped {parcel}"

    @app.workflow
    async def send(ctx: semel.Context, order: str) -> str:
        token = str(ctx.uuid4())
        await ctx.step(ran.append, f"token {token} {ctx.run_id}", name="note")
        parcel = await ctx.step(pack, order)
        sent = await ctx.step(ship, parcel)
        return f"{sent} {ctx.effect_key('x')}"

    return app, send


async def test_a_failed_one_goes_on_with_mended_code_from_before_its_failing_step(world: World) -> None:
    first: list[str] = []
    app, send = broken(world, first)
    async with world.worker(app):
        old = await app.start_workflow(send, "o-1", workflow_id="send-1")
        with pytest.raises(semel.ExecutionFailed, match="no stamps"):
            await old.result(timeout="60s")
    again: list[str] = []
    app, _ = broken(world, again, fixed=True)
    found = await app.find("send-1", kind="workflow")
    assert found is not None
    new = await found.reset("ship")
    assert (new.key, new.id != old.id) == ("send-1", True)
    async with world.worker(app):
        result = await new.result(timeout="60s")
    assert result.startswith("shipped packed o-1 ")
    assert again == first[-1:], "only the step itself ran again, under the same effect key"
    told = await app.explain("send-1", kind="workflow")
    assert [(e.id, e.status) for e in told.executions] == [(new.id, "completed"), (old.id, "failed")]
    assert [e.generation for e in told.executions] == [0, 0]


async def test_one_that_lives_ends_and_goes_on_as_another(world: World) -> None:
    app = world.app()
    ran: list[str] = []

    @app.workflow
    async def wait(ctx: semel.Context) -> list[str]:
        await ctx.step(ran.append, "a", name="a")
        ctx.search_attributes["stage"] = "one"
        await ctx.step(ran.append, "b", name="b")
        ctx.search_attributes["stage"] = "two"
        ctx.publish("stage", "two")
        return [await ctx.wait_signal("go"), await ctx.wait_signal("go")]

    async with world.worker(app):
        old = await app.start_workflow(wait, workflow_id="w")
        await old.signal("go", "first", dedup_key="k1")

        async def waits_again() -> bool:
            return [e.name for e in await old.history() if e.kind == "signal"].count("go") == 3

        await eventually(waits_again)
        new = await old.reset("b")
        assert await ended(old) == "cancelled"
        with pytest.raises(semel.WorkflowEnded):
            await old.signal("go", "late")
        await new.signal("go", "first", dedup_key="k1")
        await new.signal("go", "second")
        assert await new.result(timeout="60s") == ["first", "second"], "a signal that had come is not lost"
    assert ran == ["a", "b", "b"]
    assert await new.attributes() == {"stage": "two"}
    assert await new.published("stage") == "two"
    assert (await old.describe()).error is not None


async def test_signals_that_were_not_taken_in_follow_in_their_order(world: World) -> None:
    app = world.app()

    @app.workflow
    async def three(ctx: semel.Context) -> list[str]:
        got = [await ctx.wait_signal("s")]
        await ctx.step(lambda: None, name="between")
        return [*got, await ctx.wait_signal("s"), await ctx.wait_signal("s")]

    async with world.worker(app):
        old = await app.start_workflow(three, workflow_id="w")
        await old.signal("s", "1")

        async def waits() -> bool:
            return await old.status() == "waiting" and len(await old.history()) >= 5

        await eventually(waits)
    for text in ("2", "3"):
        await old.signal("s", text)  # nobody is there to take them in
    new = await old.reset("row:1")
    async with world.worker(app):
        assert await new.result(timeout="60s") == ["1", "2", "3"]


async def test_a_task_that_runs_answers_the_new_one(world: World) -> None:
    app = world.app()
    runs: list[str] = []

    @app.task
    async def slow(name: str) -> str:
        runs.append(name)
        return f"{name} {semel.effect_key('e')[:4]}"

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        await ctx.step(lambda: None, name="first")
        return [await ctx.execute_task(slow, "x"), await ctx.execute_task(slow, "y", task_id="slow-y")]

    old = await app.start_workflow(flow, workflow_id="f")
    worker = world.app()
    worker.tasks.add(flow)  # runs the workflow, not the task
    async with world.worker(worker):
        await eventually(lambda: _asked(old, "slow"))
    new = await old.reset("slow")
    assert await old.status() == "cancelled"
    async with world.worker(app):
        told = await new.result(timeout="60s")
    assert [text[0] for text in told] == ["x", "y"]
    assert runs == ["x", "y"], "each ran once: the first was waited for by the new one"


async def _asked(handle: semel.Handle[object], name: str) -> bool:
    return any(e.what == "asked" and e.name == name for e in await handle.history())


async def test_a_task_that_completed_is_not_run_again_and_one_that_failed_is(world: World) -> None:
    app = world.app()
    runs: list[str] = []
    keys: list[str] = []
    fails = [True]

    @app.task
    async def good() -> str:
        runs.append("good")
        return "fine"

    @app.task(retry=1)
    async def bad() -> str:
        runs.append("bad")
        keys.append(semel.effect_key("bad"))
        if fails[0]:
            raise ValueError("no")
        return "mended"

    @app.workflow
    async def flow(ctx: semel.Context) -> list[str]:
        return [await ctx.execute_task(good), await ctx.execute_task(bad)]

    async with world.worker(app):
        old = await app.start_workflow(flow, workflow_id="f")
        assert await ended(old) == "failed"
        fails[0] = False
        new = await old.reset("good")
        assert await new.result(timeout="60s") == ["fine", "mended"]
        assert runs == ["good", "bad", "bad"]
        again = await new.reset("bad")
        assert await again.result(timeout="60s") == ["fine", "mended"]
    assert runs == ["good", "bad", "bad"], "it has completed by now"
    assert keys[0] == keys[1]


async def test_a_child_is_waited_for_and_kept(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> str:
        return str(await ctx.wait_signal("go"))

    @app.workflow
    async def parent(ctx: semel.Context) -> list[str]:
        one = await ctx.start_workflow(child, workflow_id="c-1", on_parent_close="cancel")
        two = await ctx.execute_workflow(child, workflow_id="c-2")
        return [two, await one.result()]

    async with world.worker(app):
        old = await app.start_workflow(parent, workflow_id="p")

        async def both() -> list[semel.Handle[str]] | None:
            found = [await app.find(key, kind="workflow") for key in ("c-1", "c-2")]
            return [handle for handle in found if handle] if all(found) else None

        children = await eventually(both)
        new = await old.reset("child")
        for handle in children:
            await handle.signal("go", handle.key)
        assert await new.result(timeout="60s") == ["c-2", "c-1"]
        assert [await handle.status() for handle in children] == ["completed", "completed"]


async def test_who_waits_for_a_child_hears_of_the_one_it_goes_on_as(world: World) -> None:
    app = world.app()

    @app.workflow
    async def child(ctx: semel.Context) -> str:
        return str(await ctx.wait_signal("go"))

    @app.workflow
    async def parent(ctx: semel.Context) -> str:
        return await ctx.execute_workflow(child, workflow_id="c")

    async with world.worker(app):
        handle = await app.start_workflow(parent, workflow_id="p")
        old = await eventually(lambda: app.find("c", kind="workflow"))
        await eventually(lambda: _asked(old, "go"))
        new = await old.reset("go")
        await new.signal("go", "done")
        assert await handle.result(timeout="60s") == "done"


async def test_only_the_run_that_goes_on_can_be_gone_back_in(world: World) -> None:
    app = world.app()
    ran: list[int] = []

    @app.workflow
    async def rounds(ctx: semel.Context, n: int) -> int:
        ctx.search_attributes["n"] = str(n)
        await ctx.step(ran.append, n, name="round")
        if n < 3:
            ctx.continue_as_new(n + 1)
        await ctx.step(ran.append, 10 * n, name="last")
        return n

    async with world.worker(app):
        old = await app.start_workflow(rounds, 1, workflow_id="r")
        assert await old.result(timeout="60s") == 3
        rows = sorted({event.row for event in await old.history()})
        assert rows[0] > 1, "rows go on when it continues as new"
        for to, text in (
            ("row:1", f"has the rows {rows[0]} to {rows[-1]}"),
            (f"row:{rows[-1] + 1}", f"has the rows {rows[0]} to {rows[-1]}"),
            (1, "no command 1"),
            (99, "no command 99"),
            ("nothing", "There are: round, last"),
            ("²", "nothing of the name '²'"),
            ("row:²", "nothing of the name 'row:²'"),
        ):
            with pytest.raises(semel.NotResettable, match=text):
                await old.reset(to)
        new = await old.reset("last")
        assert await new.result(timeout="60s") == 3
    assert ran == [1, 2, 3, 30, 30]
    assert await new.attributes() == {"n": "3"}
    with pytest.raises(semel.NotResettable, match="a newer one has its key"):
        await old.reset("last")


async def test_a_task_cannot_be_reset(world: World) -> None:
    app = world.app()

    @app.task
    async def plain() -> None: ...

    handle = await app.enqueue(plain)
    with pytest.raises(semel.NotResettable, match="is a task"):
        await handle.reset("row:0")
    assert await handle.status() == "pending", "what is refused changes nothing"
    async with world.worker(app):
        await handle.result(timeout="60s")


async def test_a_refused_reset_leaves_a_living_one_alone(world: World) -> None:
    app = world.app()

    @app.workflow
    async def wait(ctx: semel.Context) -> str:
        return str(await ctx.wait_signal("go"))

    async with world.worker(app):
        handle = await app.start_workflow(wait, workflow_id="w")
        with pytest.raises(semel.NotResettable):
            await handle.reset("row:77")
        await handle.signal("go", "on")
        assert await handle.result(timeout="60s") == "on"


@pytest.mark.journal("stops between two statements")
async def test_it_happens_as_a_whole_or_not_at_all(world: World) -> None:
    app = world.app()

    @app.workflow
    async def wait(ctx: semel.Context) -> str:
        await ctx.step(lambda: None, name="first")
        return str(await ctx.wait_signal("go"))

    async with world.worker(app):
        old = await app.start_workflow(wait, workflow_id="w")
        await eventually(lambda: _asked(old, "go"))
    store = app.engine._store  # type: ignore[attr-defined]
    past = await app.engine.past(old.id)
    for at in range(1, 100):
        store.tap = fault = Fault(at, Mode.BEFORE)
        try:
            await app.engine.reset(old.id, "f" * 32, 1)
        except semel.EngineUnavailable:
            store.tap = None
            assert await world.count() == 1, fault.fired
            assert await app.engine.past(old.id) == past, fault.fired
        else:
            break
    store.tap = None
    assert at > 10
    new = await app.get("f" * 32)
    await new.signal("go", "on")
    async with world.worker(app):
        assert await new.result(timeout="60s") == "on"


def test_without_await(sqlite_world: World) -> None:
    app = semel.App(sqlite_world.url, config=None)

    @app.workflow
    async def wait(ctx: semel.Context) -> str:
        return str(await ctx.wait_signal("go"))

    handle = app.sync.start_workflow(wait, workflow_id="w")
    handle.signal("go", "x")
    new = handle.reset("row:0")
    assert (new.key, handle.status(), new.history()) == ("w", "cancelled", [])
    assert app.sync.find("w", kind="workflow") is not None
    assert new.attributes() == {}
    assert new.published("nothing", "none") == "none"
    assert new.terminate("enough") == "cancelled"
    assert [replayed.ok for replayed in app.sync.replay()] == [True, True]
    app.sync.close()


@pytest.mark.parametrize("to", ["mark", "row:0"])
async def test_what_came_before_two_resets_is_not_lost_although_no_worker_ran_between_them(
    world: World, to: str
) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        made = await ctx.step(lambda: "made", name="mark")
        ctx.publish("marked", True)
        return f"{made} {await ctx.wait_signal('word', type=str)}"

    async with world.worker(app):
        old = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: old.published("marked"))
        await waits(old)
    await old.signal("word", "heard")
    second = await (await old.reset(to)).reset(to)
    async with world.worker(app):
        assert await second.result("60s") == "made heard"
