"""A failed attempt is tried again after its wait, until the policy says that it is enough."""

from datetime import timedelta

import semel
from tests.world import World, ended, eventually

STEADY = semel.Retry(max_attempts=3, initial="10s", factor=3, jitter=0)


class Declined(Exception):
    pass


class Stolen(Declined):
    pass


async def waits_for(handle: semel.Handle[object], attempt: int) -> semel.Execution:
    async def put_off() -> semel.Execution | None:
        execution = await handle.describe()
        return execution if execution.attempt == attempt and execution.run_at else None

    return await eventually(put_off)


async def test_attempts_wait_longer_and_longer_and_then_fail(world: World) -> None:
    app, attempts = world.app(), []

    @app.task(retry=STEADY)
    async def charge() -> None:
        attempts.append(semel.current().attempt)
        raise ValueError(f"try {len(attempts)}")

    async with world.worker(app):
        handle = await app.enqueue(charge, task_id="k")
        for attempt, seconds in ((1, 10), (2, 30)):
            execution = await waits_for(handle, attempt)
            assert (execution.status, execution.max_attempts) == ("pending", 3)
            assert execution.error is not None
            assert execution.error.message == f"try {attempt}"
            assert execution.run_at is not None
            assert timedelta(0) < execution.run_at - world.now() <= timedelta(seconds=seconds)
            assert (await app.enqueue(charge, task_id="k")).duplicate
            assert attempts == list(range(1, attempt + 1))
            await world.advance(seconds)
        assert await ended(handle) == "failed"
    execution = await handle.describe()
    assert (execution.attempt, execution.run_at) == (3, None)
    assert execution.error is not None
    assert execution.error.message == "try 3"
    assert attempts == [1, 2, 3]


async def test_a_later_attempt_may_succeed(world: World) -> None:
    app = world.app()

    @app.task(retry=semel.Retry(max_attempts=5, initial=0))
    async def charge() -> int:
        if semel.current().attempt < 3:
            raise OSError("flaky")
        return semel.current().attempt

    async with world.worker(app):
        handle = await app.enqueue(charge)
        assert await handle.result(timeout="60s") == 3
    execution = await handle.describe()
    assert (execution.status, execution.attempt, execution.error) == ("completed", 3, None)


async def test_hopeless_errors_end_it_at_once(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retry=semel.Retry(max_attempts=5, initial=0, non_retryable=(Declined,)))
    async def by_class() -> None:
        runs.append("class")
        raise Stolen

    @app.task(retry=semel.Retry(max_attempts=5, initial=0, non_retryable=("Declined",)))
    def by_name() -> None:
        runs.append("name")
        raise Stolen

    async with world.worker(app):
        for task in (by_class, by_name):
            handle = await app.enqueue(task)
            assert await ended(handle) == "failed"
            assert (await handle.describe()).attempt == 1
    assert runs == ["class", "name"]


async def test_three_attempts_unless_told_otherwise(world: World) -> None:
    app = world.app()

    @app.task
    async def default() -> None: ...

    @app.task(retry=1)
    async def once() -> None:
        raise ValueError

    assert (await (await app.enqueue(default)).describe()).max_attempts == 3
    async with world.worker(app):
        handle = await app.enqueue(once)
        assert await ended(handle) == "failed"
        assert (await handle.describe()).attempt == 1


async def test_a_parameter_added_with_a_default_reads_what_was_stored_before(world: World) -> None:
    old, new = world.app(), world.app()

    @old.task(name="charge")
    async def before(cents: int) -> str: ...  # type: ignore[empty-body]

    @new.task(name="charge")
    async def after(cents: int, currency: str = "EUR") -> str:
        return f"{cents} {currency}"

    handle = await old.enqueue(before, 1)
    async with world.worker(new):
        assert await handle.result(timeout="60s") == "1 EUR"
