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


async def failure(world: World, error: BaseException) -> semel.ExecutionFailed:
    app = world.app()

    @app.task(retry=1)
    async def charge() -> None:
        raise error

    handle = await app.enqueue(charge, task_id="k")
    async with world.worker(app):
        assert await ended(handle) == "failed"
    with pytest.raises(semel.ExecutionFailed) as caught:
        await handle.result(timeout="60s")
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
    assert error.type == "semel.NotEncodable"
    assert "result is a object" in error.message
    assert runs == [1]


def declined_orders(count: int) -> ExceptionGroup[Exception]:
    """As nested TaskGroups raise it: one error by itself, the others in a group of their own."""
    inner = ExceptionGroup("unhandled errors in a TaskGroup", [ValueError(f"order {i}") for i in range(1, count)])
    return ExceptionGroup("unhandled errors in a TaskGroup", [Declined("no funds"), inner])


async def test_a_failed_group_names_its_causes(world: World) -> None:
    error = await failure(world, declined_orders(6))
    assert f"{__name__}.Declined: no funds; ValueError: order 1; ValueError: order 2; and 3 more" in error.error_message
    assert "no funds" in str(error)


async def test_a_failed_group_in_a_workflow_names_its_causes(world: World) -> None:
    app = world.app()

    @app.workflow
    async def settle(ctx: semel.Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(decline())

    async def decline() -> None:
        raise ValueError("no funds")

    handle = await app.start_workflow(settle, workflow_id="w")
    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed, match=r"TaskGroup \(1 sub-exception\): ValueError: no funds"):
            await handle.result("60s")
    assert "ValueError: no funds" in str(await app.explain("w", kind="workflow"))


async def test_an_error_is_told_without_repeating_its_name_or_its_full_stop(world: World) -> None:
    error = await failure(world, semel.EngineUnavailable("the ledger is away."))
    told = "of 'charge' failed: EngineUnavailable [SEMEL-N01]: the ledger is away. Run it again with: "
    assert told in error.message
    await assert_no_repeats(world)


async def assert_no_repeats(world: World) -> None:
    explained = str(await world.app().explain("k"))
    assert "Error: EngineUnavailable [SEMEL-N01]: the ledger is away." in explained
    assert ".." not in explained
