"""What is done with events, as operations that can be broken at each statement."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import semel
from semel.contract.events import EventState
from semel.triggers.event_source import EventSource
from tests.faults.event_shop import EventShop, paid
from tests.faults.operations import Memo, operation
from tests.faults.schedule_operations import OPERATIONS

__all__ = ["OPERATIONS"]

# How things stand before. `events`: the activities that must have a run for each event in the end.


async def two_activities(shop: EventShop) -> Memo:
    await shop.subscribe(bill=shop.bill, settle=shop.settle)
    await (await shop.events()).matches(paid("any"))  # the subscriptions are known
    return {"events": {"new": ["bill", "settle"]}}


async def an_event_that_was_delivered(shop: EventShop) -> Memo:
    memo = await two_activities(shop)
    await shop.app.publish(paid("new"))
    return memo


async def another_process_subscribed(shop: EventShop) -> Memo:
    """This one has read the subscriptions before that."""
    await shop.subscribe(bill=shop.bill)
    await (await shop.events()).matches(paid("any"))
    async with EventShop(shop.site) as other:
        await other.subscribe(bill=other.bill, settle=other.settle)
    return {"events": {"new": ["bill", "settle"]}}


async def events_that_are_due(shop: EventShop) -> Memo:
    await two_activities(shop)
    at = datetime.fromtimestamp(shop.site.time(), UTC) + timedelta(hours=1)
    await shop.app.publish_many([paid("a"), paid("b")], deliver_at=at)
    await shop.site.advance(3700)
    return {"events": {"a": ["bill", "settle"], "b": ["bill", "settle"]}}


async def a_parked_event(shop: EventShop) -> Memo:
    await two_activities(shop)
    early = paid("stuck").model_copy(update={"time": datetime.now(UTC) + timedelta(days=9)})
    receipt = await shop.app.publish(early, source=EventSource(name="shop", max_future="1h"))
    assert receipt.state is EventState.PARKED
    return {"events": {"stuck": ["bill", "settle"]}}


async def a_failed_run(shop: EventShop) -> Memo:
    await shop.subscribe(bill=shop.refuse)
    receipt = await shop.app.publish(paid("bad"))
    async with shop.app.worker():
        with suppress(semel.ExecutionFailed):
            await receipt.runs[0].result("30s")
    return {"events": {"bad": ["bill"]}}


async def kept_events(shop: EventShop) -> Memo:
    await shop.app.publish_many([paid("a"), paid("b"), paid("c")])
    await shop.subscribe(bill=shop.bill)
    return {"events": {"a": ["bill"], "b": ["bill"], "c": ["bill"]}}


# What callers do, and do again.


@operation(two_activities, client=True, shop=EventShop)
async def publish_event(shop: EventShop, memo: Memo) -> Any:
    return {"keys": [run.key for run in (await shop.app.publish(paid("new"))).runs]}


@operation(another_process_subscribed, client=True, shop=EventShop)
async def publish_event_by_old_subscriptions(shop: EventShop, memo: Memo) -> Any:
    return {"keys": [run.key for run in (await shop.app.publish(paid("new"))).runs]}


@operation(an_event_that_was_delivered, client=True, shop=EventShop)
async def publish_event_again(shop: EventShop, memo: Memo) -> Any:
    receipts = await shop.app.publish_many([paid("new"), paid("more")])
    memo["events"]["more"] = ["bill", "settle"]
    await (await shop.events()).write_counts()
    return {"keys": [run.key for one in receipts for run in one.runs]}


@operation(a_parked_event, client=True, shop=EventShop)
async def replay_parked_event(shop: EventShop, memo: Memo) -> Any:
    await shop.app.events.replay("stuck")


@operation(a_failed_run, client=True, shop=EventShop)
async def replay_failed_run(shop: EventShop, memo: Memo) -> Any:
    await shop.app.events.replay("bad")


@operation(kept_events, client=True, shop=EventShop)
async def backfill_events(shop: EventShop, memo: Memo) -> Any:
    await shop.app.events.backfill("bill")


@operation(two_activities, client=True, shop=EventShop)
async def apply_subscriptions(shop: EventShop, memo: Memo) -> Any:
    memo["events"] = {}
    shop.app.events._declared.pop("settle", None)
    return [str(change) for change in await shop.app.apply(prune=True)]


# What workers do.


@operation(events_that_are_due, shop=EventShop)
async def deliver_due_events(shop: EventShop, memo: Memo) -> Any:
    return await (await shop.events()).tick()
