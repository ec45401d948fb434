"""An execution is found by its key, by its id, or by the beginning of its id."""

import pytest

import semel
from tests.world import World


async def test_by_key(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    first = await app.enqueue(work, task_id="k")
    found = await app.find("k")
    assert found is not None
    assert (found.id, found.key, found.name, found.duplicate) == (first.id, "k", "work", False)
    assert await app.find("other") is None
    await first.cancel()
    second = await app.enqueue(work, task_id="k")
    newest = await app.find("k")
    assert newest is not None
    assert newest.id == second.id
    with pytest.raises(semel.InvalidKey, match="key=''"):
        await app.find("")


async def test_a_key_is_looked_for_among_all_kinds(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context) -> None: ...

    started = await app.start_workflow(flow, workflow_id="k")
    found = await app.find("k")
    assert found is not None
    assert found.id == started.id
    told = await app.explain("k")
    assert (told.kind, told.other_kinds, [one.id for one in told.executions]) == ("workflow", (), [started.id])
    asked = await app.enqueue(work, task_id="k")
    found = await app.find("k")
    assert found is not None
    assert found.id == asked.id
    told = await app.explain("k")
    assert (told.kind, told.other_kinds) == ("task", ("workflow",))
    told = await app.explain("k", kind="workflow")
    assert (told.kind, told.other_kinds) == ("workflow", ())
    assert (await app.explain("nothing")).kind == "task"
    assert await app.find("k", kind="entity") is None


async def test_by_id_and_by_the_beginning_of_one(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    one, two = await app.enqueue(work), await app.enqueue(work)
    await world.listed()
    assert (await app.get(one.id)).id == one.id
    same = len([c for c, d in zip(one.id, two.id, strict=True) if c == d])
    at = next(n for n in range(32) if one.id[n] != two.id[n])
    assert (await app.get(two.id[: at + 1])).id == two.id
    assert same < len(one.id)
    for unclear in (one.id[:at], "0" * 32, "ffff", "nonsense", "%", "_"):
        with pytest.raises(semel.NotFound, match="semel list"):
            await app.get(unclear)


async def test_a_handle_says_what_it_is(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    first = await app.enqueue(work, task_id="k")
    again = await app.enqueue(work, task_id="k")
    assert repr(first) == f"<Handle 'work' {first.id} key='k'>"
    assert repr(again) == f"<Handle 'work' {first.id} key='k' duplicate>"
    execution = await first.describe()
    assert (execution.id, execution.kind, execution.queue) == (first.id, "task", "default")
