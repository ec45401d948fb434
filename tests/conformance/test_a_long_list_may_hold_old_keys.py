"""A long list is admitted the quick way first; keys that are taken lose nothing by it, wherever they stand in it."""

import pytest

from tests.world import World


@pytest.mark.parametrize("where", [0, 150, 299])
async def test_one_old_key_in_a_long_list_is_joined_and_the_rest_is_in(world: World, where: int) -> None:
    app = world.app()

    @app.task
    async def work(n: int) -> None: ...

    old = await app.enqueue(work, where, task_id=f"k-{where}")
    handles = await app.enqueue_many((work.call(n), f"k-{n}") for n in range(300))
    assert [handle.key for handle in handles] == [f"k-{n}" for n in range(300)]
    assert [n for n, handle in enumerate(handles) if handle.duplicate] == [where]
    assert handles[where].id == old.id
    assert await world.count() == await world.work() == 300


async def test_a_key_that_is_twice_in_a_long_list_is_in_once(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    handles = await app.enqueue_many((work.call(), f"k-{n % 150}") for n in range(300))
    assert [handle.duplicate for handle in handles] == [False] * 150 + [True] * 150
    assert [handle.id for handle in handles[:150]] == [handle.id for handle in handles[150:]]
    assert await world.count() == await world.work() == 150


@pytest.mark.needs("in_order")
async def test_order_within_a_list_is_kept_the_quick_way_too(world: World) -> None:
    app, ran = world.app(), []

    @app.task
    async def work(n: int) -> None:
        ran.append(n)

    handles = await app.enqueue_many((work.call(n), f"k-{n}") for n in range(300))
    async with app.worker(concurrency=1):
        await handles[-1].result(timeout="30s")
    assert ran == list(range(300))
