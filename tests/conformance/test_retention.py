"""Results are kept for their retention, then dropped; what has not ended is never touched."""

import pytest

import semel
from tests.world import World, ended


async def test_a_result_is_there_until_its_retention_is_over(world: World) -> None:
    app = world.app()

    @app.task(retention="1d")
    async def work() -> str:
        return "done"

    async with world.worker(app):
        handle = await app.enqueue(work)
        await handle.result(timeout="60s")
    await world.advance("23h")
    await world.clean(app)
    assert await handle.result(timeout="60s") == "done"
    await world.advance("2h")
    await world.clean(app)
    with pytest.raises(semel.ResultExpired, match="past its retention"):
        await handle.result(timeout="60s")
    with pytest.raises(semel.NotFound):
        await handle.status()
    assert await world.count() == 0


async def test_the_default_is_seven_days(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    async with world.worker(app):
        await (await app.enqueue(work, task_id="k")).result(timeout="60s")
    await world.advance("167h")
    await world.clean(app)
    assert await world.count() == 1
    await world.advance("2h")
    await world.clean(app)
    assert await world.count() == 0


async def test_what_has_not_ended_is_never_dropped(world: World) -> None:
    app = world.app()

    @app.task(retention="0")
    async def work() -> str:
        return "done"

    waits = await app.enqueue(work, queue="nobody")
    later = await app.enqueue(work, delay="400d", queue="nobody")
    await world.advance("365d")
    await world.clean(app)
    assert [await waits.status(), await later.status()] == ["pending", "pending"]
    async with world.worker(app):
        assert await waits.result(timeout="60s") == "done"


async def test_failed_ones_are_dropped_too(world: World) -> None:
    app = world.app()

    @app.task(retention="1d", retry=1)
    async def work() -> None:
        raise ValueError

    async with world.worker(app):
        assert await ended(await app.enqueue(work, task_id="k")) == "failed"
    await world.advance("25h")
    assert await app.clean() == 1
    assert await world.count() == 0
    assert await app.list(status="failed") == []


@pytest.mark.journal("looks at its tables")
async def test_no_row_is_left_of_a_failed_one(world: World) -> None:
    app = world.app()

    @app.task(retention="1d", retry=1)
    async def work() -> None:
        raise ValueError

    async with world.worker(app):
        assert await ended(await app.enqueue(work, task_id="k")) == "failed"
    assert await world.count("semel_dead") == 1
    await world.advance("25h")
    await world.clean(app)
    tables = ("semel_execution", "semel_dead", "semel_duplicate", "semel_slip")
    assert [await world.count(table) for table in tables] == [0] * 4


async def test_each_goes_by_the_retention_it_was_admitted_with(world: World) -> None:
    app = world.app()
    app.configure_queue("short", retention="1h")

    @app.task
    async def work() -> None: ...

    @app.task(retention="2d")
    async def kept() -> None: ...

    async with world.worker(app):
        handles = [
            await app.enqueue(work, queue="short"),
            await app.enqueue(kept, queue="short"),
            await app.enqueue(work),
        ]
        for handle in handles:
            await handle.result(timeout="60s")
    await world.advance("2h")
    await world.clean(app)
    assert {one.id for one in await app.list()} == {handles[1].id, handles[2].id}
