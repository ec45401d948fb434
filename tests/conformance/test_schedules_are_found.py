"""Runs of schedules are found by the times that they were scheduled for, as a range and in that order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import semel
from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World, eventually


async def test_runs_are_found_and_ordered_by_their_slots(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="catchup")

    @shop.app.task
    async def other() -> None: ...

    await shop.app.enqueue(other, task_id="by-hand")
    async with world.worker(shop.app):
        await world.advance(3 * HOUR + timedelta(minutes=1))  # three slots, of which two are late
        await shop.ran(0, 1, 2)
        await (await shop.app.schedules.trigger("daily")).result("60s")

        async def found(**options: Any) -> list[int]:
            slots = [str(one.key).removeprefix("activity-daily:") for one in await shop.app.list(**options)]
            return [[shop.slot(number).isoformat() for number in range(3)].index(slot) for slot in slots]

        async def all_found() -> bool:  # a cluster's list may lag behind by a moment
            return await found(scheduled_after=shop.slot(0)) == [2, 1, 0]

        await eventually(all_found)
        assert await found(scheduled_after=shop.slot(1), scheduled_before=shop.slot(2)) == [1]
        assert await found(scheduled_before=shop.slot(1)) == [0]
        newest = await shop.app.list(scheduled_after=shop.slot(0), limit=1)
        assert await found(scheduled_after=shop.slot(0), before=newest[0].id) == [1, 0]
        assert await found(scheduled_after=shop.slot(0), name="other") == []


async def test_times_that_make_no_range_are_refused(world: World) -> None:
    app, now = world.app(), world.now()
    with pytest.raises(semel.InvalidValue, match="no slot between"):
        await app.list(scheduled_after=now, scheduled_before=now)
    with pytest.raises(semel.InvalidValue, match="no time zone"):
        await app.list(scheduled_after=now.replace(tzinfo=None))
    with pytest.raises(semel.InvalidValue, match="not both"):
        await app.list(scheduled_after=now, attributes={"scope": "eu"})
