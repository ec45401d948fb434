"""A schedule that counts from the end of each run has one open slot at a time, whoever is away and for how long."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import semel
from semel.contract.slot_policy import SkipReason
from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World


async def look(app: semel.App) -> None:
    schedules: Any = await app.engine.schedules()
    await schedules.inner.tick()


async def test_one_slot_is_missed_while_nobody_is_there(world: World) -> None:
    shop = Shop(world)
    await shop.put(after="finish", start_at=None)
    await world.jump("10h40m")
    await look(shop.app)
    (skipped,) = await shop.app.schedules.skipped("daily")
    assert (skipped.reason, skipped.count, skipped.first) == (SkipReason.LATE, 1, skipped.last)


@pytest.mark.parametrize("overlap", ["allow_all", "buffer_one", "cancel_other"])
async def test_it_has_no_other_overlap_than_skip(world: World, overlap: Any) -> None:
    shop = Shop(world)
    with pytest.raises(semel.InvalidValue, match="does not go with after='finish'"):
        await shop.put(after="finish", overlap=overlap)
    assert await shop.app.schedules.list() == []
    await shop.put(after="finish")
    with pytest.raises(semel.InvalidValue, match="does not go with after='finish'"):
        await shop.app.schedules.edit("daily", overlap=overlap)


async def test_the_log_has_each_skipped_slot_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(world)
    await shop.put(end_at=shop.begin + 9 * HOUR)
    await world.jump("61m")
    await look(shop.app)  # its run waits for a worker: the slots that follow meet it
    with caplog.at_level(logging.WARNING, "semel.schedules"):
        for _ in range(3):
            await world.jump("60m")
            await look(shop.app)
    told = [record.getMessage() for record in caplog.records if "did not run" in record.getMessage()]
    assert len(told) == 3
    assert not any("slots" in one for one in told), told
    (skipped,) = await shop.app.schedules.skipped("daily")
    assert skipped.count == 3, "and in one record they are together"
