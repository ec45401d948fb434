"""Slots that have not come are explained, and a schedule names only runs that have not ended."""

from __future__ import annotations

from datetime import timedelta

from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World, eventually


async def test_a_slot_of_the_future_is_due_and_when(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    key = f"activity-daily:{shop.slot(3).isoformat()}"
    told = str(await shop.app.explain(key))
    assert f"Slot {shop.slot(3):%Y-%m-%d %H:%M:%S} UTC of schedule 'daily' has not run yet: it is due at" in told
    assert "Nothing is known" not in told
    other = str(await shop.app.explain(f"activity-daily:{(shop.slot(3) + timedelta(seconds=1)).isoformat()}"))
    assert "Schedule 'daily' has no slot at" in other
    await shop.app.schedules.pause("daily")
    assert "the schedule is paused since" in str(await shop.app.explain(key))
    missing = str(await shop.app.explain(f"activity-weekly:{shop.slot(3).isoformat()}"))
    assert "Nothing is known" in missing


async def test_a_schedule_without_further_slots_forgets_its_last_run_when_that_has_ended(world: World) -> None:
    shop = Shop(world)
    await shop.put(end_at=shop.begin + timedelta(minutes=1))
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance(HOUR)
        await shop.has_begun(0)
        seen = await shop.app.schedules.get("daily")
        assert (len(seen.running), seen.next_slot) == (1, None)
        assert [one.running for one in await shop.app.schedules.list()] == [seen.running]
        shop.holds.set()
        await shop.has_ended(0)

        async def forgotten() -> bool:
            return not (await shop.app.schedules.get("daily")).running

        await eventually(forgotten)
    assert [one.running for one in await shop.app.schedules.list()] == [()]


async def test_a_paused_schedule_forgets_a_run_that_ended_meanwhile(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance(HOUR)
        await shop.has_begun(0)
        await shop.app.schedules.pause("daily", "holidays")
        assert len((await shop.app.schedules.get("daily")).running) == 1
        shop.holds.set()
        await shop.has_ended(0)
        assert (await shop.app.schedules.get("daily")).running == ()
