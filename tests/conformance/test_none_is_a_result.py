"""A task that returns None has completed, and its result is None."""

import pytest

from tests.world import World


async def test_none_is_read_as_none(world: World) -> None:
    app, runs = world.app(), []

    @app.task
    async def quiet() -> None:
        runs.append(1)

    async with world.worker(app):
        first = await app.enqueue(quiet, task_id="k")
        assert await first.result(timeout="60s") is None
        again = await app.enqueue(quiet, task_id="k")
        assert again.duplicate
        assert await again.result(timeout="60s") is None
    assert runs == [1]


@pytest.mark.journal("looks at a table")
async def test_none_is_stored_as_nothing(world: World) -> None:
    app = world.app()

    @app.task
    async def quiet() -> None: ...

    async with world.worker(app):
        await (await app.enqueue(quiet)).result(timeout="60s")
    assert await world.sql("select status, output from semel_execution") == [("completed", None)]
