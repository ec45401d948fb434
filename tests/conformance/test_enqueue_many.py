"""Many at once: in order, each for itself."""

import pytest

import semel
from tests.world import World


def define(app: semel.App) -> semel.Task[[int], int]:
    @app.task
    async def double(n: int) -> int:
        return 2 * n

    return double


async def test_handles_come_back_in_order(world: World) -> None:
    app = world.app()
    double = define(app)
    async with world.worker(app):
        handles = await app.enqueue_many([(double.call(n), f"k{n}") if n % 2 else double.call(n) for n in range(30)])
        assert [handle.key for handle in handles[:3]] == [None, "k1", None]
        assert [await handle.result(timeout="60s") for handle in handles] == [2 * n for n in range(30)]


@pytest.mark.journal("a cluster takes one request at a time")
async def test_more_than_fit_into_one_commit(world: World) -> None:
    app = world.app()
    double = define(app)
    handles = await app.enqueue_many(double.call(n) for n in range(2500))
    assert len({handle.id for handle in handles}) == 2500
    assert await world.count() == 2500


async def test_duplicates_inside_a_batch_are_one(world: World) -> None:
    app = world.app()
    double = define(app)
    handles = await app.enqueue_many([(double.call(1), key) for key in ("a", "b", "a", "a")])
    assert [handle.duplicate for handle in handles] == [False, False, True, True]
    assert handles[0].id == handles[2].id == handles[3].id != handles[1].id
    assert await world.count() == 2
    (joined,) = (await app.explain("a")).suppressed
    assert joined.count == 2


async def test_a_batch_again_changes_nothing(world: World) -> None:
    app = world.app()
    double = define(app)
    batch = [(double.call(n), f"k{n}") for n in range(5)]
    first, second = await app.enqueue_many(batch), await app.enqueue_many(batch)
    assert [handle.id for handle in first] == [handle.id for handle in second]
    assert all(handle.duplicate for handle in second)


async def test_a_conflict_is_raised_after_the_others_are_in(world: World) -> None:
    app = world.app()
    double = define(app)
    with pytest.raises(semel.KeyConflict, match="n: 1 -> 2"):
        await app.enqueue_many([(double.call(1), "a"), (double.call(2), "a"), (double.call(3), "c")])
    assert await app.find("c") is not None
    assert await world.count() == 2


async def test_a_duplicate_is_raised_if_asked_for(world: World) -> None:
    app = world.app()
    double = define(app)
    with pytest.raises(semel.TaskAlreadyExists):
        await app.enqueue_many([(double.call(1), "a"), (double.call(1), "a")], on_duplicate="raise")
    assert await world.count() == 1


async def test_options_are_for_all(world: World) -> None:
    app = world.app()
    await app.enqueue_many([define(app).call(n) for n in range(3)], queue="q", priority=7, delay="1h")
    await world.listed()
    assert {(one.queue, one.priority, one.run_at is None) for one in await app.list()} == {("q", 7, False)}


async def test_nothing_is_nothing(world: World) -> None:
    assert await world.app().enqueue_many([]) == []
