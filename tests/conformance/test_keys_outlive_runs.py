"""dedup_window longer than retention: the result is gone, the key still holds."""

import pytest

import semel
from tests.world import World


async def test_the_key_blocks_until_its_window_ends(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retention="1d", dedup_window="30d")
    async def charge(n: int) -> str:
        runs.append(n)
        return "charged"

    async with world.worker(app):
        first = await app.enqueue(charge, 1, task_id="k")
        assert await first.result(timeout="60s") == "charged"
        await world.advance("25h")
        await world.clean(app)
        assert (await first.describe()).expired
        again = await app.enqueue(charge, 1, task_id="k")
        assert (again.duplicate, again.id) == (True, first.id)
        with pytest.raises(semel.ResultExpired):
            await again.result(timeout="60s")
        await world.advance("28d")
        await world.clean(app)
        assert (await app.enqueue(charge, 1, task_id="k")).duplicate
        await world.advance("1d")
        fresh = await app.enqueue(charge, 1, task_id="k")
        assert not fresh.duplicate
        assert await fresh.result(timeout="60s") == "charged"
    assert runs == [1, 1]


@pytest.mark.journal("a cluster hides them, and drops them with the key")
async def test_input_and_result_are_really_gone(world: World) -> None:
    app = world.app()

    @app.task(retention="1d", dedup_window="30d")
    async def charge(n: int) -> str:
        return "charged"

    async with world.worker(app):
        await (await app.enqueue(charge, 1, task_id="k")).result(timeout="60s")
    await world.advance("25h")
    await world.clean(app)
    assert await world.sql("select input, output, error, key from semel_execution") == [(None, None, None, "k")]


async def test_after_the_window_everything_is_forgotten(world: World) -> None:
    app = world.app()

    @app.task(retention="1d", dedup_window="30d")
    async def charge() -> None: ...

    async with world.worker(app):
        await (await app.enqueue(charge, task_id="k")).result(timeout="60s")
        await app.enqueue(charge, task_id="k")
        await app.explain("k")
    await world.advance("25h")
    await world.clean(app)
    await world.advance("30d")
    await world.clean(app)
    assert await world.count() == 0
    assert "Nothing is known" in str(await app.explain("k"))


@pytest.mark.journal("looks at its tables")
async def test_after_the_window_no_row_is_left(world: World) -> None:
    app = world.app()

    @app.task(retention="1d", dedup_window="30d")
    async def charge() -> None: ...

    async with world.worker(app):
        await (await app.enqueue(charge, task_id="k")).result(timeout="60s")
        await app.enqueue(charge, task_id="k")
        await app.explain("k")
    await world.advance("31d")
    await world.clean(app)
    tables = ("semel_execution", "semel_duplicate", "semel_slip", "semel_ready", "semel_later")
    assert [await world.count(table) for table in tables] == [0] * 5


async def test_a_duplicate_does_not_lengthen_the_window(world: World) -> None:
    app = world.app()

    @app.task(retention="10d")
    async def charge() -> None: ...

    async with world.worker(app):
        await (await app.enqueue(charge, task_id="k")).result(timeout="60s")
    await world.advance("9d")
    assert (await app.enqueue(charge, task_id="k")).duplicate
    await world.advance("2d")
    assert not (await app.enqueue(charge, task_id="k")).duplicate
