"""on_duplicate="raise": the error knows the execution that is there."""

from datetime import timedelta

import pytest

import semel
from tests.world import World, ended


def define(app: semel.App) -> semel.Task[..., dict[str, int]]:
    @app.task(retention="1h", dedup_window="2h", retry=1)
    async def charge(cents: int) -> dict[str, int]:
        if cents < 0:
            raise ValueError("negative")
        return {"charged": cents}

    return charge


async def test_one_that_is_there_has_id_and_status(world: World) -> None:
    app = world.app()
    charge = define(app)
    first = await app.enqueue(charge, 1, task_id="k")
    with pytest.raises(semel.TaskAlreadyExists) as caught:
        await app.enqueue(charge, 1, task_id="k", on_duplicate="raise")
    assert (caught.value.existing_execution_id, caught.value.status) == (first.id, "pending")
    assert str(caught.value) == (
        f"TaskAlreadyExists [SEMEL-K03]: task 'k' is already pending, as execution {first.id}."
    )


async def test_one_that_completed_has_its_result_and_time(world: World) -> None:
    app = world.app()
    charge = define(app)
    async with world.worker(app):
        first = await app.enqueue(charge, 1, task_id="k")
        await first.result(timeout="60s")
        with pytest.raises(semel.TaskAlreadyCompleted) as caught:
            await app.enqueue(charge, 1, task_id="k", on_duplicate="raise")
    error = caught.value
    assert (error.existing_execution_id, error.status) == (first.id, "completed")
    assert error.result == {"charged": 1}
    assert error.completed_at == (await first.describe()).finished_at
    assert abs(error.completed_at - world.now()) < timedelta(seconds=30)


async def test_one_that_is_past_its_retention_has_no_result_left(world: World) -> None:
    app = world.app()
    charge = define(app)
    async with world.worker(app):
        await (await app.enqueue(charge, 1, task_id="k")).result(timeout="60s")
    await world.advance("90m")
    await world.clean(app)
    with pytest.raises(semel.TaskAlreadyCompleted) as caught:
        await app.enqueue(charge, 1, task_id="k", on_duplicate="raise")
    assert caught.value.result is None


async def test_a_first_request_is_never_raised(world: World) -> None:
    app = world.app()
    assert not (await app.enqueue(define(app), 1, task_id="k", on_duplicate="raise")).duplicate


async def test_a_failed_one_is_raised_only_where_it_keeps_its_key(world: World) -> None:
    app = world.app()
    charge = define(app)
    async with world.worker(app):
        first = await app.enqueue(charge, -1, task_id="k")
        assert await ended(first) == "failed"
        with pytest.raises(semel.TaskAlreadyExists) as caught:
            await app.enqueue(charge, -1, task_id="k", on_duplicate="raise", reuse="reject")
        assert (caught.value.existing_execution_id, caught.value.status) == (first.id, "failed")
