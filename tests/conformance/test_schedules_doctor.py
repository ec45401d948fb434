"""`semel doctor` names schedules that are late, paused themselves, never ran, or run what no worker has."""

from __future__ import annotations

from datetime import timedelta

import semel
from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World, eventually


async def told(app: semel.App) -> dict[str, str]:
    """What is wrong with schedules, by its heading."""
    findings = [one for one in await app.doctor() if "schedule" in one.what or one.what.startswith("runs")]
    assert [one for one in findings if one.ok], "it always says how many there are"
    return {one.what: one.detail for one in findings if not one.ok}


async def counts(app: semel.App) -> str:
    (found,) = [one.detail for one in await app.doctor() if one.what == "schedules"]
    return found


async def test_nothing_is_wrong_with_schedules_that_run(world: World) -> None:
    shop = Shop(world)
    assert await shop.app.schedules.list() == [], "the tables are there now"
    assert await counts(shop.app) == "none"
    await shop.put(finish_by="10m")
    async with world.worker(shop.app):
        await world.advance("61m")
        await shop.ran(0)
        await shop.has_ended(0)
        await world.advance("30m")
        assert await told(shop.app) == {}, "it has ended long ago, though nobody has looked at the schedule since"
        assert await counts(shop.app) == "1, 0 of them paused"


async def test_a_schedule_that_nobody_looks_at_is_late(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    await world.advance("62m")
    late = (await told(shop.app))["late schedules"]
    assert late.startswith("daily (due since ")
    assert "no worker runs" in late
    async with world.worker(shop.app, schedules=False):
        assert "--no-schedules" in (await told(shop.app))["late schedules"]


async def test_a_cursor_in_the_future_is_found(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("70m")
        await shop.ran(0)
        await shop.has_ended(0)
    await world.turn_back("30m")
    assert "a clock ran ahead" in (await told(shop.app))["schedules in the future"]


async def test_a_schedule_that_paused_itself_is_found_and_one_that_somebody_paused_is_not(world: World) -> None:
    shop = Shop(world)
    shop.fails = True
    await shop.put(pause_after_failures=1)
    async with world.worker(shop.app):
        await world.advance("70m")
        await shop.ran(0)

        async def paused() -> bool:
            world.look_at_schedules()
            return (await shop.app.schedules.get("daily")).paused_at is not None

        await world.advance("1s")
        await eventually(paused)
    assert "semel schedules resume" in (await told(shop.app))["schedules that paused"]
    await shop.app.schedules.resume("daily")
    await shop.app.schedules.pause("daily", "audit")
    assert "schedules that paused" not in await told(shop.app)
    assert await counts(shop.app) == "1, 1 of them paused"


async def test_a_schedule_whose_slots_were_all_skipped_is_found(world: World) -> None:
    shop = Shop(world)
    await shop.put(grace="1m")
    await world.advance("150m")
    async with world.worker(shop.app):
        await shop.is_covered(1)
        found = (await told(shop.app))["schedules that never ran"]
        assert found.startswith("daily (last: 2 slots from ")
        await world.advance("30m")
        await shop.ran(2)
        assert "schedules that never ran" not in await told(shop.app)


async def test_a_run_that_is_not_finished_in_time_is_found(world: World) -> None:
    shop = Shop(world)
    shop.holds.clear()
    await shop.put(finish_by="10m")
    async with world.worker(shop.app):
        await world.advance("61m")
        await shop.ran(0)
        assert await told(shop.app) == {}
        await world.advance("20m")
        (run,) = await shop.app.schedules.runs("daily")
        found = (await told(shop.app))["runs that are not finished"]
        assert "to finish within 10m" in found
        assert found.startswith(f"daily {shop.begin:%Y-%m-%d %H:%M:%S} UTC")
        assert run.scheduled_for == shop.begin
        shop.holds.set()
        await shop.has_ended(0)
        assert await told(shop.app) == {}


async def test_a_schedule_of_a_function_that_no_worker_has_is_found(world: World) -> None:
    shop, other = Shop(world), world.app()

    @other.task
    async def sweep() -> None: ...

    await shop.put(start_at=shop.begin + 1000 * HOUR)
    assert await told(shop.app) == {}, "without any worker nothing is wrong yet"
    async with world.worker(other):

        async def found() -> bool:
            return "task 'report' on queue 'default'" in (await told(other)).get("schedules without a function", "")

        await eventually(found)


async def test_only_the_first_are_named(world: World) -> None:
    shop = Shop(world)
    for number in range(7):
        await shop.app.schedules.put(f"s{number}", shop.report, "Paris", every="1h", start_at=shop.begin)
    await world.advance(timedelta(minutes=90))
    late = (await told(shop.app))["late schedules"]
    assert late.count("due since") == 5
    assert "and 2 more" in late
