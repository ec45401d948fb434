"""retention="0": deduplicated while it is under way, dropped once it was delivered."""

import asyncio

import pytest

import semel
from tests.world import World


async def test_it_deduplicates_while_live_and_frees_its_key_at_the_end(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retention="0")
    async def work() -> int:
        runs.append(1)
        return len(runs)

    first = await app.enqueue(work, task_id="k")
    same = await app.enqueue(work, task_id="k")
    assert (same.duplicate, same.id) == (True, first.id)
    async with world.worker(app):
        results = await asyncio.gather(first.result(timeout="60s"), same.result(timeout="60s"))  # kept for seconds only
        assert results == [1, 1]
        second = await app.enqueue(work, task_id="k")
        assert not second.duplicate
        assert await second.result(timeout="60s") == 2


async def test_a_little_later_the_row_is_gone_and_the_result_expired(world: World) -> None:
    app = world.app()

    @app.task(retention="0")
    async def work() -> int:
        return 1

    async with world.worker(app):
        handle = await app.enqueue(work)
        assert await handle.result(timeout="60s") == 1
    await world.advance("6s")
    await world.clean(app)
    with pytest.raises(semel.ResultExpired):
        await handle.result(timeout="60s")
    assert await world.count() == 0


async def test_the_key_is_remembered_if_a_window_asks_for_it(world: World) -> None:
    app = world.app()

    @app.task(retention="0", dedup_window="1d")
    async def work() -> int:
        return 1

    async with world.worker(app):
        first = await app.enqueue(work, task_id="k")
        await first.result(timeout="60s")
    await world.advance("6s")
    await world.clean(app)
    again = await app.enqueue(work, task_id="k")
    assert (again.duplicate, again.id) == (True, first.id)
    with pytest.raises(semel.ResultExpired):
        await again.result(timeout="60s")
