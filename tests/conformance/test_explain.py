"""explain tells everything that is known of a key."""

from datetime import timedelta

import pytest

import semel
from semel.contract.decision import Reason
from tests.world import World


async def test_a_key_that_was_never_used(world: World) -> None:
    story = await world.app().explain("nothing")
    assert (story.executions, story.suppressed) == ((), ())
    assert "Nothing is known under the key 'nothing'" in str(story)


async def test_every_suppressed_duplicate_is_counted_by_reason(world: World) -> None:
    app = world.app()

    @app.task
    async def charge(cents: int) -> int:
        return cents

    @app.task
    async def refund(cents: int) -> int:
        return cents

    first = await app.enqueue(charge, 1, task_id="k")
    for _ in range(3):
        await app.enqueue(charge, 1, task_id="k")
    for task, cents in ((charge, 2), (refund, 1)):
        with pytest.raises(semel.KeyConflict):
            await app.enqueue(task, cents, task_id="k")
    async with world.worker(app):
        await first.result(timeout="60s")
    for _ in range(2):
        await app.enqueue(charge, 1, task_id="k")
    story = await app.explain("k")
    assert {s.reason: s.count for s in story.suppressed} == {
        Reason.JOINED: 3,
        Reason.INPUT_DIFFERS: 1,
        Reason.FUNCTION_DIFFERS: 1,
        Reason.REPLAYED: 2,
    }
    assert {s.execution_id for s in story.suppressed} == {first.id}
    assert "3 duplicates did not run (it had not ended" in str(story)
    assert "2 duplicates did not run (it had finished" in str(story)
    assert "The key is taken until" in str(story)


async def test_counts_of_several_apps_add_up(world: World) -> None:
    apps = [world.app(), world.app()]
    for app in apps:

        @app.task
        async def charge() -> None: ...

        for _ in range(3):
            await app.enqueue(charge, task_id="k")
        await app.explain("k")
    (joined,) = (await apps[0].explain("k")).suppressed
    assert joined.count == 5


async def test_first_and_last_go_by_the_clock_of_the_database(world: World) -> None:
    app = world.app()

    @app.task
    async def charge() -> None: ...

    await world.advance("1d")
    await app.enqueue(charge, task_id="k")
    await app.enqueue(charge, task_id="k")
    first_at = world.now()
    await world.advance("2h")
    await app.enqueue(charge, task_id="k")
    story = await app.explain("k")
    (joined,) = story.suppressed
    assert abs(joined.first_at - first_at) < timedelta(minutes=1)
    assert abs(joined.last_at - joined.first_at - timedelta(hours=2)) < timedelta(minutes=1)
    assert abs(story.asked_at - world.now()) < timedelta(minutes=1)


async def test_the_window_is_told_and_when_it_ends(world: World) -> None:
    app = world.app()

    @app.task(retention="1d", dedup_window="30d")
    async def charge() -> None: ...

    handle = await app.enqueue(charge, task_id="k")
    story = await app.explain("k")
    assert story.executions[0].window_ends_at is None
    assert "It has not ended" in str(story)
    async with world.worker(app):
        await handle.result(timeout="60s")
    (execution,) = (story := await app.explain("k")).executions
    assert execution.finished_at is not None
    assert execution.window_ends_at == execution.finished_at + timedelta(days=30)
    assert f"taken until {execution.window_ends_at:%Y-%m-%d %H:%M:%S} UTC (its window is 30d" in str(story)
    await world.advance("2d")
    await world.clean(app)
    assert "only the key is remembered" in str(await app.explain("k"))
    await world.advance("28d")
    assert "the next request under this key runs" in str(await app.explain("k"))
