"""What sweepers do, as operations that can be broken at each statement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import semel
from semel.define.context import current_or_none
from tests.faults.operations import Memo, operation
from tests.faults.schedule_shop import HOUR, ScheduleShop
from tests.faults.site import Site
from tests.faults.transactional_operations import OPERATIONS

__all__ = ["OPERATIONS"]
KEYS = [f"o-{number}" for number in range(5)]


class SweeperShop(ScheduleShop):
    """Orders that are stuck for ever, whatever is started for them."""

    def __init__(self, site: Site, **options: Any) -> None:
        super().__init__(site, **options)

        @self.app.sweeper("stuck", every="1h")
        async def stuck(sweep: semel.Sweep) -> AsyncIterator[semel.Stuck]:
            if current_or_none() is not None:
                self.ledger.record_here()
            for key in KEYS:
                yield semel.Stuck(key, self.charge, key)


async def five_stuck_orders(shop: SweeperShop) -> Memo:
    await shop.app.queues()
    return {"keys": KEYS}


async def some_under_way(shop: SweeperShop) -> Memo:
    """One has failed, one is pending, and three were never started."""
    failed = await shop.app.enqueue(shop.doomed, "o-0", task_id="o-0")
    async with shop.app.worker():
        try:
            await failed.result(60)
        except semel.ExecutionFailed:
            pass
        else:
            raise AssertionError("it did not fail")
    await shop.app.enqueue(shop.charge, "o-1", task_id="o-1")
    return {"keys": KEYS}


async def a_sweep_is_due(shop: SweeperShop) -> Memo:
    slots = await shop.put("stuck", shop.app.tasks.task("semel.sweep.stuck"), begin=shop.begin)
    await (await shop.schedules()).tick()
    await shop.site.advance(HOUR + 60)
    await (await shop.schedules()).tick()
    return {"keys": KEYS, "slots": slots}


@operation(five_stuck_orders, client=True, shop=SweeperShop)
async def sweep_that_starts_five(shop: SweeperShop, memo: Memo) -> Any:
    await shop.app.sweep("stuck")
    return {"keys": KEYS}


@operation(some_under_way, client=True, shop=SweeperShop)
async def sweep_that_meets_others(shop: SweeperShop, memo: Memo) -> Any:
    await shop.app.sweep("stuck")
    return {"keys": KEYS}


@operation(a_sweep_is_due, survives=True, shop=SweeperShop)
async def life_of_a_sweep_in_a_worker(shop: SweeperShop, memo: Memo) -> Any:
    await shop.run_all()
