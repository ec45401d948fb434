"""What a task raises is stored as text, whatever it is, and told to whoever asks."""

import asyncio

import pytest

import semel
from tests.world import World, ended


class Declined(Exception):
    pass


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("cannot say")


async def failure(world: World, error: BaseException) -> semel.TaskFailed:
    app = world.app()

    @app.task(retry=1)
    async def charge() -> None:
        raise error

    handle = await app.enqueue(charge, task_id="k")
    async with world.worker(app):
        assert await ended(handle) == "failed"
    with pytest.raises(semel.TaskFailed) as caught:
        await handle.result(timeout="20s")
    assert caught.value.execution_id == handle.id
    return caught.value


async def test_type_message_and_traceback_are_kept(world: World) -> None:
    error = await failure(world, Declined("no funds"))
    assert error.error_type == f"{__name__}.Declined"
    assert error.error_message == "no funds"
    assert "in charge" in error.traceback
    assert "raise error" in error.traceback
    assert f"semel redrive {error.execution_id}" in str(error)


async def test_a_builtin_error_has_its_plain_name(world: World) -> None:
    assert (await failure(world, ValueError("x"))).error_type == "ValueError"


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("mine"), StopAsyncIteration(), GeneratorExit(),
        Unreadable(), ValueError("nul \x00 and \ud800 and 🧾"), ValueError("x" * 100_000),
        ExceptionGroup("many", [ValueError(1)]), TimeoutError("of its own"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_whatever_is_raised_the_worker_survives_it(world: World, error: BaseException) -> None:
    found = await failure(world, error)
    assert type(error).__name__ in found.error_type
    assert len(found.error_message) < 20_000


async def test_a_sync_task_that_raises_what_futures_cannot_hold(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    def stops() -> None:
        raise StopIteration("odd")

    handle = await app.enqueue(stops)
    async with world.worker(app):
        assert await ended(handle) == "failed"
    assert "odd" in str((await handle.describe()).error)


async def test_a_result_that_cannot_be_stored_fails_the_task_at_once(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retry=5)
    async def broken() -> object:
        runs.append(1)
        return object()

    handle = await app.enqueue(broken)
    async with world.worker(app):
        assert await ended(handle) == "failed"
    error = (await handle.describe()).error
    assert error is not None
    assert error.type == "semel.errors.NotEncodable"
    assert "result is a object" in error.message
    assert runs == [1]
