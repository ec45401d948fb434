"""What backfills do, as operations that can be broken at each statement."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.faults.backfill_invariants import Expected
from tests.faults.event_flow_operations import OPERATIONS
from tests.faults.operations import Memo, operation
from tests.faults.schedule_operations import begin_of
from tests.faults.schedule_shop import HOUR, SLOTS, ScheduleShop, grid_of

__all__ = ["OPERATIONS"]

# How things stand before. `backfill`: what must hold of the runs of its slots when everything has ended.


async def skipped_slots(shop: ScheduleShop) -> Memo:
    """All slots of a schedule were skipped."""
    begin = shop.begin
    await shop.put("report", shop.report, "Paris", begin=begin, grace="10m")
    await (await shop.schedules()).tick()
    await shop.site.advance(SLOTS * HOUR + HOUR * 0.9)
    await (await shop.schedules()).tick()
    return {"begin": begin.isoformat(), "backfill": Expected(grid_of(begin), 1, "completed").plain()}


async def a_backfill(shop: ScheduleShop) -> Memo:
    """Nobody has begun with it."""
    memo = await skipped_slots(shop)
    await ask(shop, memo)
    return memo


async def a_backfill_whose_runs_have_ended(shop: ScheduleShop) -> Memo:
    """Two runs have ended, and nobody has noticed."""
    memo = await a_backfill(shop)
    await (await shop.schedules()).backfills.carry_on()
    await shop.run_all()
    await shop.site.advance(60)
    return memo


async def a_backfill_of_slots_that_ran(shop: ScheduleShop) -> Memo:
    """All slots ran by a backfill, and are to run again by another one."""
    memo = await a_backfill(shop)
    schedules = await shop.schedules()
    for _ in range(SLOTS):
        await schedules.backfills.carry_on()
        await shop.run_all()
        await shop.site.advance(60)
    await schedules.backfills.carry_on()
    await ask(shop, memo, "again", rerun="all")
    return {**memo, "backfill": Expected(grid_of(begin_of(memo)), 2, "completed").plain()}


async def a_paused_backfill(shop: ScheduleShop) -> Memo:
    memo = await a_backfill_whose_runs_have_ended(shop)
    await shop.app.schedules.backfills.pause("b-1")
    return memo


async def a_backfill_to_be_cancelled(shop: ScheduleShop) -> Memo:
    """Of its slots two have run, and no more need."""
    memo = await a_backfill_whose_runs_have_ended(shop)
    return {**memo, "backfill": Expected(grid_of(begin_of(memo)), 1, "cancelled").plain()}


async def ask(shop: ScheduleShop, memo: Memo, key: str = "b-1", **options: Any) -> None:
    begin = begin_of(memo)
    end = begin + timedelta(hours=SLOTS - 1, minutes=1)
    await shop.app.schedules.backfill("report", begin, end, request_key=key, max_active=2, **options)


# What workers do.


@operation(a_backfill, shop=ScheduleShop)
async def step_that_starts_runs_of_a_backfill(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).backfills.carry_on()


@operation(a_backfill_whose_runs_have_ended, shop=ScheduleShop)
async def step_that_notes_ends_of_a_backfill(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).backfills.carry_on()


@operation(a_backfill_of_slots_that_ran, shop=ScheduleShop)
async def step_that_runs_slots_again(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).backfills.carry_on()


# What callers do, and do again.


@operation(skipped_slots, client=True, shop=ScheduleShop)
async def create_backfill(shop: ScheduleShop, memo: Memo) -> Any:
    await ask(shop, memo)


@operation(a_backfill_whose_runs_have_ended, client=True, shop=ScheduleShop)
async def pause_backfill(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.backfills.pause("b-1", "for a while")


@operation(a_paused_backfill, client=True, shop=ScheduleShop)
async def resume_backfill(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.backfills.resume("b-1")


@operation(a_backfill_to_be_cancelled, client=True, shop=ScheduleShop)
async def cancel_backfill(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.backfills.cancel("b-1")
