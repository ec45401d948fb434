"""What schedules do, as operations that can be broken at each statement."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import semel
from tests.faults.flow_operations import OPERATIONS
from tests.faults.operations import Memo, operation
from tests.faults.schedule_shop import HOUR, SLOTS, ScheduleShop, grid_of

__all__ = ["OPERATIONS"]

# How things stand before. `slots`: for each schedule the slots that must all have one fate, in one way or another.


async def no_schedules(shop: ScheduleShop) -> Memo:
    """Created later, when its slots have passed, it has none."""
    begin = shop.begin
    return {"begin": begin.isoformat(), "slots": {"new": [grid_of(begin), []]}}


async def three_due_schedules(shop: ScheduleShop) -> Memo:
    begin = shop.begin
    slots = await shop.put("report", shop.report, "Paris", begin=begin)
    slots |= await shop.put("count", shop.count, begin=begin, overlap="allow_all", grace="90m")
    slots |= await shop.put("digest", shop.digest, begin=begin)
    await (await shop.schedules()).tick()
    await shop.site.advance(HOUR + 60)
    return {"slots": slots}


async def active_runs(shop: ScheduleShop) -> Memo:
    """Runs of the first slot are active; the second one waits, where it may; the third has come."""
    begin = shop.begin
    slots: dict[str, Any] = {}
    for overlap in ("skip", "buffer_one", "buffer_all", "cancel_other"):
        slots |= await shop.put(overlap, shop.report, overlap, begin=begin, overlap=overlap, start_deadline="5h")
    slots |= await shop.put("terminate_other", shop.digest, begin=begin, overlap="terminate_other")
    for _ in range(2):
        await shop.site.advance(HOUR)
        await (await shop.schedules()).tick()
    await shop.site.advance(HOUR)
    return {"slots": slots}


async def missed_slots(shop: ScheduleShop) -> Memo:
    """Three slots were missed, and of one schedule a run is active."""
    begin = shop.begin
    slots = await shop.put("catchup", shop.report, "Oslo", begin=begin, misfire="catchup", max_catchup=2)
    slots |= await shop.put("compress", shop.report, "Rome", begin=begin, misfire="compress", overlap="buffer_one")
    slots |= await shop.put("skip", shop.report, "Bonn", begin=begin)
    await shop.site.advance(HOUR)
    await (await shop.schedules()).tick()
    await shop.site.advance(3 * HOUR + HOUR * 0.9)
    return {"slots": slots}


async def runs_that_nobody_begins(shop: ScheduleShop) -> Memo:
    """Runs of a task and of a workflow were started, and their start deadline has passed."""
    begin = shop.begin
    slots = await shop.put("report", shop.report, "Paris", begin=begin, start_deadline="10m")
    slots |= await shop.put("digest", shop.digest, begin=begin, start_deadline="10m", misfire="compress")
    await shop.site.advance(HOUR + 1)
    await (await shop.schedules()).tick()
    await shop.site.advance(HOUR / 4)
    return {"slots": slots}


async def one_open_slot(shop: ScheduleShop) -> Memo:
    """The first slot of a schedule has come, and nobody has looked at it."""
    begin = shop.begin
    slots = await shop.put("report", shop.report, "Paris", begin=begin)
    await (await shop.schedules()).tick()
    await shop.site.advance(HOUR + 60)
    return {"begin": begin.isoformat(), "slots": slots}


async def one_open_slot_and_a_change(shop: ScheduleShop) -> Memo:
    """Changed at once it has its first slot and then one in two hours; changed later, when all have passed, all."""
    memo = await one_open_slot(shop)
    (hourly,) = memo["slots"]["report"]
    memo["slots"]["report"] = [[hourly[0], *hourly[2::2]], hourly]
    return memo


async def two_declared_before(shop: ScheduleShop) -> Memo:
    """One that code still declares, and one that it does not."""
    begin = shop.begin
    declare(shop, "kept", begin)
    declare(shop, "pruned", begin)
    await shop.app.apply()
    shop.app.schedules._declared.clear()
    return {"begin": begin.isoformat(), "slots": {"kept": [grid_of(begin)], "pruned": [[]]}}


async def runs_that_failed(shop: ScheduleShop) -> Memo:
    """As many runs have failed as a schedule puts up with, and its second slot has come.

    Whoever looks next pauses it: nothing after the first slot is decided, or all if it is resumed then.
    """
    memo = await one_open_slot(shop)
    memo["slots"]["report"].append(memo["slots"]["report"][0][:1])
    await shop.app.schedules.edit("report", pause_after_failures=2)
    await shop.site.script("update semel_schedule set state = " + as_bytes(shop, '{"failures":2}'))
    await shop.site.advance(HOUR)
    return memo


async def records_that_differ(shop: ScheduleShop) -> Memo:
    """Nobody would look at a schedule any more, and the record of a run of another one is gone."""
    begin = shop.begin
    slots = await shop.put("asleep", shop.report, "Paris", begin=begin)
    slots |= await shop.put("unrecorded", shop.report, "Rome", begin=begin)
    await shop.site.advance(HOUR + 1)
    await (await shop.schedules()).tick()
    await shop.run_all()
    asleep = "update semel_schedule set due_at = null where id = 'asleep'"
    await shop.site.script(f"{asleep}; delete from semel_run where schedule = 'unrecorded'")
    await shop.site.advance(60)
    return {"slots": slots}


async def old_records(shop: ScheduleShop) -> Memo:
    """Slots that were skipped are past the retention of their record."""
    await shop.put("report", shop.report, "Paris", begin=shop.begin)
    await shop.site.advance((SLOTS + 2) * HOUR)
    await (await shop.schedules()).tick()
    await shop.site.advance(91 * 24 * HOUR)
    return {"slots": {}}


def as_bytes(shop: ScheduleShop, text: str) -> str:
    """Bytes as the database writes them."""
    return f"'{text}'::bytea" if shop.site.engine == "postgres" else f"cast('{text}' as blob)"


async def one_paused(shop: ScheduleShop) -> Memo:
    memo = await one_open_slot(shop)
    await shop.app.schedules.pause("report", "by an operator")
    await shop.site.advance(HOUR)
    return memo


def declare(shop: ScheduleShop, id: str, begin: datetime) -> None:
    """As code does it."""
    if id not in shop.app.schedules.declared:
        end = begin + timedelta(hours=SLOTS)
        shop.app.on_schedule(id=id, every="1h", start_at=begin, end_at=end)(shop.count)


def begin_of(memo: Memo) -> datetime:
    """The first slot."""
    return datetime.fromisoformat(memo["begin"])


# What workers do.


@operation(three_due_schedules, shop=ScheduleShop)
async def tick_that_starts_runs(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).tick()


@operation(active_runs, shop=ScheduleShop)
async def tick_that_meets_active_runs(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).tick()


@operation(missed_slots, shop=ScheduleShop)
async def tick_after_missed_slots(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).tick()


@operation(runs_that_nobody_begins, shop=ScheduleShop)
async def tick_that_drops_runs(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).tick()


@operation(runs_that_failed, shop=ScheduleShop)
async def tick_that_pauses_a_failing_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).tick()


@operation(old_records, shop=ScheduleShop)
async def forget_records_of_schedules(shop: ScheduleShop, memo: Memo) -> Any:
    return await (await shop.schedules()).forget()


# What callers do, and do again.


@operation(no_schedules, client=True, shop=ScheduleShop)
async def create_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.put("new", shop.report, "Paris", begin=begin_of(memo))


@operation(one_open_slot_and_a_change, client=True, shop=ScheduleShop)
async def change_schedule_with_an_open_slot(shop: ScheduleShop, memo: Memo) -> Any:
    begin = begin_of(memo)
    end = begin + timedelta(hours=SLOTS)
    await shop.app.schedules.put("report", shop.report, "Rome", every="2h", start_at=begin, end_at=end)


@operation(two_declared_before, client=True, shop=ScheduleShop)
async def apply_and_prune(shop: ScheduleShop, memo: Memo) -> Any:
    declare(shop, "kept", begin_of(memo))
    return [str(change) for change in await shop.app.apply(prune=True)]


@operation(one_open_slot, client=True, shop=ScheduleShop)
async def pause_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.pause("report", "for a while")


@operation(one_paused, client=True, shop=ScheduleShop)
async def resume_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.resume("report")


@operation(one_paused, client=True, shop=ScheduleShop)
async def trigger_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    return {"keys": [(await shop.app.schedules.trigger("report", "request-1")).key]}


@operation(one_open_slot, client=True, shop=ScheduleShop)
async def delete_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    memo["slots"] = {}
    with suppress(semel.NotFound):
        await shop.app.schedules.delete("report")


@operation(one_open_slot, client=True, shop=ScheduleShop)
async def edit_schedule(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.edit("report", finish_by="30m")


@operation(records_that_differ, client=True, shop=ScheduleShop)
async def reconcile_schedules(shop: ScheduleShop, memo: Memo) -> Any:
    await shop.app.schedules.reconcile(fix=True)
