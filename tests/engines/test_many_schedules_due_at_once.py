"""Very many schedules that are due at one instant: looked at in parts, two at once, and each slot runs once."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.engines.journal import schedule_scripts, schedules
from tests.world import World, eventually

COUNT = 23


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (schedule_scripts, schedules):
        monkeypatch.setattr(module, "AT_ONCE", 3)


async def put_many(world: World, app: semel.App) -> Any:
    """Schedules of two functions whose next slot has come."""

    @app.task
    async def digest(user: int) -> int:
        return user

    @app.task
    async def report(user: int, run: semel.Run) -> int:
        return user

    begin = world.now() - timedelta(minutes=1)
    for n in range(COUNT):
        await app.schedules.put(f"many:{n}", (digest, report)[n % 2], n, every="1h", start_at=begin)
    engine = await app.engine.schedules()
    await engine.tick()
    await world.advance("1h")
    return engine


async def test_each_runs_once(world: World) -> None:
    app = world.app()
    engine = await put_many(world, app)
    assert await engine.tick() == COUNT
    assert await engine.tick() == 0
    runs = await world.sql("select schedule, execution from semel_run")
    assert sorted(schedule for schedule, _ in runs) == sorted(f"many:{n}" for n in range(COUNT))
    assert len({execution for _, execution in runs}) == await world.count() == await world.work() == COUNT


async def test_one_that_cannot_be_read_holds_up_no_other(world: World, caplog: pytest.LogCaptureFixture) -> None:
    app = world.app()
    engine = await put_many(world, app)
    broken = "'x'::bytea" if world.engine == "postgres" else "cast('x' as blob)"
    await world.sql(f"update semel_schedule set definition = {broken} where id = 'many:7'")
    with caplog.at_level(logging.WARNING, "semel.schedules"):
        await engine.tick()
    assert "schedule many:7 could not be looked at" in caplog.text
    assert await world.count("semel_run") == await world.count() == COUNT - 1
    assert await engine.tick() == 0, "it is put off"


async def test_lanes_that_are_not_known_yet_are_made(world: World) -> None:
    await put_many(world, world.app())
    newcomer = world.app()
    assert await (await newcomer.engine.schedules()).tick() == COUNT
    assert await world.count("semel_run") == await world.count() == COUNT


async def test_each_is_told_what_its_own_run_before_gave(world: World) -> None:
    app, told = world.app(), dict[int, list[int | None]]()

    @app.task
    async def count(user: int, run: semel.Run) -> int:
        told.setdefault(user, []).append(run.previous_result)
        return user * 10

    begin = world.now() - timedelta(minutes=1)
    for n in range(7):
        await app.schedules.put(f"count:{n}", count, n, every="1h", start_at=begin)
    engine = await app.engine.schedules()
    await engine.tick()
    async with world.worker(app, schedules=False):
        for runs in (1, 2):
            await world.advance("1h")
            assert await engine.tick() == 7
            await eventually(lambda runs=runs: all(len(told.get(n, ())) == runs for n in range(7)))
            await eventually(world.at_rest)
    assert told == {n: [None, n * 10] for n in range(7)}
