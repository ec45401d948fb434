"""What workflows have recorded can be tried against other code, from the database or from a file, without effects."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

import semel
from tests.world import World, ended, eventually, waits

Definition = semel.Workflow[..., Any]


def shop(world: World, ran: list[str], *, ships_first: bool = False) -> tuple[semel.App, Definition]:
    """An app; the other way round it does what its older histories do not say."""
    app = world.app()

    @app.task
    async def charge(order: str) -> dict[str, str]:
        ran.append("charge")
        return {"order": order}

    async def ship() -> str:
        ran.append("ship")
        return "sent"

    @app.workflow
    async def process(ctx: semel.Context, order: str, rounds: int = 1) -> str:
        if ships_first:
            await ctx.step(ship)
        paid = await ctx.execute_task(charge, order)
        if rounds > 1:
            ctx.continue_as_new(order, rounds - 1)
        await ctx.sleep(0.001)
        said = await ctx.wait_signal("said")
        await ctx.step(ship)
        return f"{paid['order']} {said} {ctx.uuid4()}"

    return app, process


async def told(world: World, ran: list[str], key: str, *args: Any) -> semel.Handle[str]:
    app, process = shop(world, ran)
    async with world.worker(app):
        handle = await app.start_workflow(process, *args, workflow_id=key)
        await handle.signal("said", {"words": ["yes", None, 1.5, "ä"]})
        await handle.result(timeout="60s")
    return handle


async def test_a_history_is_readable_and_replays(world: World) -> None:
    ran: list[str] = []
    handle = await told(world, ran, "p-1", "o-1")
    text = await handle.export()
    data = json.loads(text)
    assert (data["format"], data["version"]) == ("semel-history", 1)
    assert (data["workflow"], data["key"], data["input"]) == ("process", "p-1", {"order": "o-1"})
    flat = [entry for commit in data["commits"] for entry in commit]
    assert flat[0]["what"] == "began"
    assert {"what": "signalled", "name": "said", "payload": {"words": ["yes", None, 1.5, "ä"]}} in flat
    ran.clear()
    app, _ = shop(world, ran)
    answer = app.replay_history(text)
    assert (answer.ok, answer.key, answer.name, answer.error) == (True, "p-1", "process", "")
    assert app.replay_history(text.encode()).ok
    assert ran == [], "no step and no task runs"


async def test_other_code_is_told_apart_with_what_where_and_why(world: World) -> None:
    ran: list[str] = []
    handle = await told(world, ran, "p-1", "o-1")
    app, _ = shop(world, ran, ships_first=True)
    answer = app.replay_history(await handle.export())
    assert not answer.ok
    assert "task 'charge'" in answer.expected
    assert "step 'ship'" in answer.found
    assert __file__ in answer.where
    assert [one.found for one in await app.replay()] == [answer.found]
    assert await handle.status() == "completed", "nothing is written"


async def test_one_that_continued_as_new_replays_from_its_last_run(world: World) -> None:
    ran: list[str] = []
    handle = await told(world, ran, "p-1", "o-1", 3)
    text = await handle.export()
    assert json.loads(text)["snapshot"]["run"] == 3
    app, _ = shop(world, ran)
    assert app.replay_history(text).ok
    assert [one.ok for one in await app.replay()] == [True]


async def test_one_that_continued_as_new_with_a_timeout_replays_with_what_is_left_of_it(world: World) -> None:
    app = world.app()

    @app.workflow(timeout="1h")
    async def flow(ctx: semel.Context, rounds: int = 2) -> None:
        await ctx.wait_signal("go")
        if rounds > 1:
            ctx.continue_as_new(rounds - 1)

    async with world.worker(app):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await world.advance("1m")
        await handle.signal("go")
        await eventually(lambda: is_in_run(handle, 2))
        await waits(handle)
        text = await handle.export()
        assert app.replay_history(text).ok
        await handle.signal("go")
        await handle.result(timeout="60s")
    assert app.replay_history(await handle.export()).ok


async def is_in_run(handle: semel.Handle[object], run: int) -> bool:
    return [event.name for event in await handle.history() if event.what == "began"] == [f"run {run}"]


async def test_a_history_from_before_there_were_deadlines_in_it_is_read(world: World) -> None:
    ran: list[str] = []
    handle = await told(world, ran, "p-1", "o-1", 3)
    data = json.loads(await handle.export())
    for late in ("active", "deadline"):
        del data["snapshot"][late]
    app, _ = shop(world, ran)
    assert app.replay_history(json.dumps(data)).ok


async def test_which_histories_are_replayed(world: World) -> None:
    ran: list[str] = []
    for key in ("a", "b"):
        await told(world, ran, key, "o")
    app, process = shop(world, ran)
    await app.start_workflow(process, "o", workflow_id="c")
    other = world.app()

    @other.workflow
    async def elsewhere(ctx: semel.Context) -> None: ...

    await other.start_workflow(elsewhere, workflow_id="d")
    seen: list[tuple[int, int]] = []
    await world.listed()
    found = await app.replay(progress=lambda done, of: seen.append((done, of)))
    assert [one.key for one in found] == ["c", "b", "a", "d"], "newest first, then what this app has no code of"
    assert [one.key for one in found if not one.ok and one.missing] == ["d"]
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [one.key for one in await app.replay(status="completed", limit=1, missing=False)] == ["b"]
    assert [one.key for one in await app.replay(name="process", since=timedelta(hours=1))] == ["c", "b", "a"]
    assert await app.replay(since=timedelta(0), missing=False) == []
    assert not other.replay_history(await (await app.get((await app.list())[1].id)).export()).ok, "no such workflow"


async def test_what_is_no_history_is_refused(world: World) -> None:
    ran: list[str] = []
    app, _ = shop(world, ran)
    handle = await told(world, ran, "p-1", "o-1")
    data = json.loads(await handle.export())
    for wrong, text in (
        ("nonsense", "no history"),
        ("[]", "no history"),
        ("{}", "no history"),
        (json.dumps(data | {"version": 2}), "has the format 2, and this Semel reads 1"),
        (json.dumps(data | {"format": "other"}), "no history"),
        (json.dumps(data | {"commits": [[{"what": "danced"}]]}), "'danced'"),
        (json.dumps(data | {"commits": [[{"no": 1}]]}), "no history"),
    ):
        with pytest.raises(semel.InvalidValue, match=text):
            app.replay_history(wrong)


async def test_code_that_is_forbidden_is_found_before_it_runs(world: World) -> None:
    app = world.app()

    @app.workflow(name="reads")
    async def careful(ctx: semel.Context) -> None:
        await ctx.step(lambda: None, name="first")

    async with world.worker(app):
        handle = await app.start_workflow(careful, workflow_id="r")
        assert await ended(handle) == "completed"
    app = world.app()

    @app.workflow(name="reads")
    async def careless(ctx: semel.Context) -> None:
        await ctx.step(lambda: None, name="first")
        open("/etc/hostname").close()  # noqa: ASYNC230, PTH123

    (answer,) = await app.replay()
    assert not answer.ok
    assert __file__ in answer.where


async def test_a_parked_one_would_go_on_with_code_that_replays(world: World) -> None:
    ran: list[str] = []
    app, process = shop(world, ran)
    async with world.worker(app):
        handle = await app.start_workflow(process, "o", workflow_id="p")

        async def waits() -> bool:
            return any(event.name == "said" for event in await handle.history())

        await eventually(waits)
    changed, _ = shop(world, ran, ships_first=True)
    async with world.worker(changed):
        await handle.signal("said", "go")

        async def parked() -> bool:
            return (await handle.describe()).error is not None

        await eventually(parked)
    (bad,) = await changed.replay()
    (good,) = await app.replay()
    assert (bad.ok, good.ok) == (False, True)
    error = (await handle.describe()).error
    assert error is not None
    assert bad.found in error.message


async def test_the_time_it_has_is_for_all_runs_together(world: World) -> None:
    app = world.app()

    @app.workflow(timeout="1h")
    async def rounds(ctx: semel.Context, left: int) -> None:
        await ctx.sleep(0.01)
        if left:
            ctx.continue_as_new(left - 1)

    async with world.worker(app):
        handle = await app.start_workflow(rounds, 2, workflow_id="r")
        assert await ended(handle) == "completed"
    assert app.replay_history(await handle.export()).ok
    assert [one.ok for one in await app.replay()] == [True]
