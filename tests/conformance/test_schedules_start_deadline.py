"""A run that no worker begins before its start deadline is dropped, and its slot leaves that reason."""

from __future__ import annotations

from typing import Any

import pytest

import semel
from semel.contract.lifecycle import Status
from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World, eventually


@pytest.mark.parametrize("kind", ["task", "workflow"])
async def test_a_run_that_nobody_begins_in_time_is_dropped(world: World, kind: str) -> None:
    """The worker that looks at schedules serves another queue than the one that the runs wait on."""
    shop = Shop(world)
    began: list[semel.Run] = []

    @shop.app.workflow
    async def flow(ctx: semel.Context, run: semel.Run) -> None:
        began.append(run)

    options: dict[str, Any] = {"every": "1h", "start_at": shop.begin, "queue": "away", "start_deadline": "20m"}
    called = shop.app.schedules.call(shop.report, city="Paris") if kind == "task" else flow
    await shop.app.schedules.put("daily", called, misfire="compress", **options)
    key = f"activity-daily:{shop.begin.isoformat()}"
    async with world.worker(shop.app, queues=["default"]):
        await world.advance(HOUR)
        handle: Any = await eventually(lambda: shop.app.find(key))
        assert await handle.status() is Status.PENDING
        await world.advance("21m")

        async def dropped() -> bool:
            return await shop.skipped() == [("deadline", 0, 0, 1)]

        await eventually(dropped)
    assert await shop.app.schedules.runs("daily") == []
    told = await shop.app.explain(key)
    assert "did not run this slot" in str(told)
    async with world.worker(shop.app):
        with pytest.raises(semel.ExecutionCancelled):
            await handle.result("60s")
        await world.advance(HOUR - (world.now() - shop.begin))
        seen = shop.seen if kind == "task" else began
        await eventually(lambda: seen)
    assert [(run.scheduled_for, run.window.slots) for run in seen] == [(shop.slot(1), 2)]
    assert seen[0].window.start is not None
    assert seen[0].window.start < shop.begin, "the window of the slot that was dropped is part of the next one"


async def test_a_run_that_has_begun_goes_on_past_its_start_deadline(world: World) -> None:
    shop = Shop(world)
    await shop.put(start_deadline="20m", overlap="buffer_one")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance(HOUR)
        await shop.has_begun(0)
        await world.advance("30m")
        await world.advance("30m")
        await shop.is_covered(1)
        shop.holds.set()
        await shop.has_ended(0)
        await shop.ran(0, 1)
    assert await shop.skipped() == []
