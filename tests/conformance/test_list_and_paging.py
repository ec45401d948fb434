"""Executions can be listed, newest first, page by page, by what they are."""

import pytest

import semel
from tests.world import World, ended


async def test_newest_first_and_page_by_page(world: World) -> None:
    app = world.app()

    @app.task
    async def work(n: int) -> None: ...

    handles = [await app.enqueue(work, n) for n in range(7)]
    ids = [handle.id for handle in reversed(handles)]
    await world.listed()
    assert [one.id for one in await app.list()] == ids
    first = await app.list(limit=3)
    second = await app.list(limit=3, before=first[-1].id)
    third = await app.list(limit=3, before=second[-1].id)
    assert [one.id for page in (first, second, third) for one in page] == ids
    assert await app.list(before=ids[-1]) == []


async def test_by_status_queue_and_name(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    @app.task(queue="other")
    async def other() -> None: ...

    done, failed = await app.enqueue(work), await app.enqueue(work, True)
    gone = await app.enqueue(other)
    await gone.cancel()
    async with world.worker(app):
        assert [await ended(done), await ended(failed)] == ["completed", "failed"]
    waits, later = await app.enqueue(work), await app.enqueue(other, delay="1h")
    await world.listed()

    async def ids(**which: str) -> set[str]:
        return {one.id for one in await app.list(**which)}

    assert await ids(status="completed") == {done.id}
    assert await ids(status="failed") == {failed.id}
    assert await ids(status="cancelled") == {gone.id}
    assert await ids(status="pending") == {waits.id, later.id}
    assert await ids(status="running") == await ids(status="timed_out") == set()
    assert await ids(queue="other") == {gone.id, later.id}
    assert await ids(name="work") == {done.id, failed.id, waits.id}
    assert await ids(name="other", status="pending") == {later.id}
    assert await ids(queue="nowhere") == set()


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_page_has_bounds(sqlite_world: World, limit: int) -> None:
    with pytest.raises(semel.InvalidValue, match="limit="):
        await sqlite_world.app().list(limit=limit)


async def test_an_unknown_status_names_those_there_are(sqlite_world: World) -> None:
    with pytest.raises(semel.InvalidValue, match="there are pending, running, waiting, completed"):
        await sqlite_world.app().list(status="done")
