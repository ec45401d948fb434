"""A key counts in its namespace, or, where a task says so, for its function or within its queue alone."""

import pytest

import semel
from semel.define.options import KeyScope
from tests.world import World


def shop(app: semel.App, scope: KeyScope) -> tuple[semel.Task[..., str], semel.Task[..., str]]:
    """Two tasks of one queue whose keys count in this scope."""

    @app.task(key_scope=scope, queue="orders")
    async def charge(order: str) -> str:
        return f"charged {order}"

    @app.task(key_scope=scope, queue="orders")
    async def ship(order: str) -> str:
        return f"shipped {order}"

    return charge, ship


async def test_the_key_of_a_function_is_its_own(world: World) -> None:
    app = world.app()
    charge, ship = shop(app, "function")
    one = await app.enqueue(charge, "o-1", task_id="o-1")
    other = await app.enqueue(ship, "o-1", task_id="o-1")
    again = await app.enqueue(charge, "o-1", task_id="o-1", queue="urgent")
    assert (one.key, other.key) == ("function:charge:o-1", "function:ship:o-1")
    assert (one.duplicate, other.duplicate, again.duplicate, again.id) == (False, False, True, one.id)
    with pytest.raises(semel.KeyConflict, match="function:charge:o-1"):
        await app.enqueue(charge, "o-2", task_id="o-1")
    async with world.worker(app):
        assert await one.result(timeout="60s") == "charged o-1"
        assert await other.result(timeout="60s") == "shipped o-1"
    found = await app.find(charge.stored_key("o-1"))
    assert found is not None
    assert found.id == one.id
    assert await app.find("o-1") is None
    assert "function:charge:o-1" in str(await app.explain("function:charge:o-1"))


async def test_the_key_of_a_queue_counts_within_it(world: World) -> None:
    app = world.app()
    charge, ship = shop(app, "queue")
    one = await app.enqueue(charge, "o-1", task_id="o-1")
    same = await app.enqueue_many([(charge.call("o-1"), "o-1")])
    elsewhere = await app.enqueue(charge, "o-1", task_id="o-1", queue="urgent")
    assert (one.key, same[0].id, same[0].duplicate) == ("queue:orders:o-1", one.id, True)
    assert (elsewhere.key, elsewhere.duplicate) == ("queue:urgent:o-1", False)
    assert charge.stored_key("o-1", "urgent") == elsewhere.key
    with pytest.raises(semel.KeyConflict, match="queue:orders:o-1"):
        await app.enqueue(ship, "o-1", task_id="o-1")


async def test_a_workflow_asks_under_the_same_key(world: World) -> None:
    app = world.app()
    charge, _ = shop(app, "function")

    @app.workflow
    async def buy(ctx: semel.Context) -> str:
        return await ctx.execute_task(charge, "o-1", task_id="o-1")

    before = await app.enqueue(charge, "o-1", task_id="o-1")
    async with world.worker(app):
        bought = await app.start_workflow(buy, workflow_id="b-1")
        assert await bought.result(timeout="60s") == "charged o-1"
    assert [one.id for one in await app.list(name="charge")] == [before.id]


async def test_the_effect_key_is_that_of_the_stored_key(world: World) -> None:
    app = world.app()

    @app.task(key_scope="function")
    async def charge() -> str:
        return semel.current().effect_key("gateway")

    handle = await app.enqueue(charge, task_id="o-1")
    async with world.worker(app):
        assert "function:charge:o-1" in await handle.result(timeout="60s")


async def test_without_a_key_there_is_nothing_to_scope(world: World) -> None:
    app = world.app()
    charge, _ = shop(app, "queue")
    one, other = await app.enqueue(charge, "o-1"), await app.enqueue(charge, "o-1")
    assert (one.key, other.key, one.id != other.id) == (None, None, True)


async def test_a_key_that_becomes_too_long_is_refused_at_the_door(world: World) -> None:
    app = world.app()
    charge, _ = shop(app, "function")
    with pytest.raises(semel.InvalidKey, match="stored as 'function:charge:"):
        await app.enqueue(charge, "o-1", task_id="k" * 250)
    assert await app.list() == []


def test_another_scope_is_refused_at_decoration() -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    with pytest.raises(semel.InvalidValue, match="use 'namespace', 'function' or 'queue'"):
        app.task(key_scope="task")(shop)  # type: ignore[call-overload]
