"""A delayed task waits for its time, by the clock of the database."""

from datetime import datetime, timedelta

import pytest

import semel
from tests.world import World


def define(app: semel.App) -> tuple[semel.Task[..., str], semel.Task[..., str]]:
    @app.task
    async def later() -> str:
        return "later"

    @app.task
    async def now() -> str:
        return "now"

    return later, now


async def test_a_delay_is_waited_for(world: World) -> None:
    app = world.app()
    later, now = define(app)
    async with world.worker(app):
        handle = await app.enqueue(later, delay="1h")
        assert await (await app.enqueue(now)).result(timeout="60s") == "now"
        await world.advance("59m")
        assert await (await app.enqueue(now)).result(timeout="60s") == "now"
        execution = await handle.describe()
        assert (execution.status, execution.attempt) == ("pending", 0)
        assert execution.run_at is not None
        assert abs(execution.run_at - execution.created_at - timedelta(hours=1)) < timedelta(seconds=1)
        await world.advance("61s")
        assert await handle.result(timeout="60s") == "later"
    assert (await handle.describe()).run_at is None


async def test_an_instant_is_waited_for(world: World) -> None:
    app = world.app()
    later, _ = define(app)
    when = world.now() + timedelta(days=2)
    async with world.worker(app):
        handle = await app.enqueue(later, run_at=when)
        assert abs(((await handle.describe()).run_at or when) - when) < timedelta(milliseconds=1)
        await world.advance("49h")
        assert await handle.result(timeout="60s") == "later"


async def test_an_instant_that_has_passed_is_now(world: World) -> None:
    app = world.app()
    later, _ = define(app)
    async with world.worker(app):
        for options in ({"run_at": world.now() - timedelta(days=1)}, {"delay": 0}):
            assert await (await app.enqueue(later, **options)).result(timeout="60s") == "later"


async def test_a_short_delay_is_not_waited_for_any_longer_than_it_takes(world: World) -> None:
    app = world.app()
    later, _ = define(app)
    async with world.worker(app, lease="10m"):  # the next heartbeat would be minutes away
        handle = await app.enqueue(later, delay="30ms")
        assert await handle.result(timeout="60s") == "later"


async def test_a_delayed_one_holds_its_key(world: World) -> None:
    app = world.app()
    later, _ = define(app)
    first = await app.enqueue(later, task_id="k", delay="1h")
    second = await app.enqueue(later, task_id="k")
    assert (second.id, second.duplicate) == (first.id, True)


async def test_a_worker_that_starts_later_finds_what_became_due(world: World) -> None:
    app = world.app()
    later, _ = define(app)
    handles = [await app.enqueue(later, delay=f"{n}h") for n in (3, 1, 2)]
    await world.advance("150m")
    async with world.worker(app):
        assert await handles[1].result(timeout="60s") == "later"
        assert await handles[2].result(timeout="60s") == "later"
        waits = await handles[0].describe()
        assert (waits.status, waits.run_at is None) == ("pending", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": "soon"}, "delay='soon' is not a duration"),
        ({"delay": -1}, "delay=-1 is out of bounds"),
        ({"run_at": datetime(2026, 1, 1)}, "has no time zone"),  # noqa: DTZ001
        ({"run_at": "2026-01-01"}, "run_at='2026-01-01'"),
    ],
)
async def test_what_is_no_time_is_refused(sqlite_world: World, options: dict[str, object], message: str) -> None:
    app = sqlite_world.app()
    later, _ = define(app)
    with pytest.raises(semel.InvalidValue) as caught:
        await app.enqueue(later, **options)
    assert message in caught.value.message


async def test_two_times_are_one_too_many(sqlite_world: World) -> None:
    app = sqlite_world.app()
    later, _ = define(app)
    with pytest.raises(semel.InvalidValue, match="not both"):
        await app.enqueue(later, delay="1s", run_at=sqlite_world.now())
