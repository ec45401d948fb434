"""What is done with events that are gathered or limited, as operations that can be broken at each statement."""

from __future__ import annotations

from typing import Any

import semel
from semel.engines.journal import event_pauses
from tests.faults.event_operations import OPERATIONS
from tests.faults.event_shop import EventShop, paid
from tests.faults.operations import Memo, operation

__all__ = ["OPERATIONS"]
EVENTS = ("a", "b", "c")
TAKEN = {"events": {id: ["index"] for id in EVENTS}}


# How things stand before.


async def a_batch(shop: EventShop) -> Memo:
    await shop.gather(batch={"size": 2, "wait": "1m"})
    return TAKEN


async def an_open_debounce(shop: EventShop) -> Memo:
    await shop.gather(debounce={"wait": "1m", "max_wait": "5m"})
    await shop.app.publish_many([paid("a"), paid("b")])
    return TAKEN


async def windows_that_are_due(shop: EventShop) -> Memo:
    await shop.gather(debounce={"wait": "1m", "key": "data.cents"})
    await shop.app.publish_many([paid("a", 1), paid("b", 2), paid("c", 1)])
    await shop.site.advance(61)
    return TAKEN


async def a_throttle(shop: EventShop) -> Memo:
    await shop.gather(throttle="1/min")
    return TAKEN


async def throttled_events(shop: EventShop) -> Memo:
    await shop.gather(batch={"size": 2, "wait": "1m"}, throttle="1/min")
    await shop.app.publish_many([paid(id) for id in (*EVENTS, "d")])
    await shop.site.advance(61)
    return {"events": {id: ["index"] for id in (*EVENTS, "d")}}


async def a_rate_limit(shop: EventShop) -> Memo:
    await shop.gather(rate_limit="2/min")
    return TAKEN


async def a_run_that_is_going(shop: EventShop) -> Memo:
    await shop.gather(singleton="cancel")
    await shop.app.publish(paid("a"))
    return TAKEN


async def an_event_that_waits_for_a_run(shop: EventShop) -> Memo:
    await a_run_that_is_going(shop)
    await shop.app.publish_many([paid("b"), paid("c")])
    await shop.site.advance(1)
    return TAKEN


# What publishers do, and do again.


async def publish(shop: EventShop, *ids: str) -> Any:
    receipts = await shop.app.publish_many([paid(id) for id in ids])
    return {"keys": [run.key for one in receipts for run in one.runs]}


@operation(a_batch, client=True, shop=EventShop)
async def gather_events(shop: EventShop, memo: Memo) -> Any:
    await publish(shop, *EVENTS)


@operation(an_open_debounce, client=True, shop=EventShop)
async def gather_one_more_event(shop: EventShop, memo: Memo) -> Any:
    await publish(shop, "c")


@operation(a_throttle, client=True, shop=EventShop)
async def throttle_events(shop: EventShop, memo: Memo) -> Any:
    await publish(shop, *EVENTS)


@operation(a_rate_limit, client=True, shop=EventShop)
async def limit_events(shop: EventShop, memo: Memo) -> Any:
    await publish(shop, *EVENTS)


@operation(a_run_that_is_going, client=True, shop=EventShop)
async def cancel_for_a_newer_event(shop: EventShop, memo: Memo) -> Any:
    await publish(shop, "b", "c")


# What workers do.


@operation(windows_that_are_due, shop=EventShop)
async def close_windows(shop: EventShop, memo: Memo) -> Any:
    return await (await shop.events()).tick()


@operation(throttled_events, shop=EventShop)
async def start_throttled_runs(shop: EventShop, memo: Memo) -> Any:
    return await (await shop.events()).tick()


@operation(an_event_that_waits_for_a_run, shop=EventShop)
async def start_after_another_run(shop: EventShop, memo: Memo) -> Any:
    return await (await shop.events()).tick()


# Cancelling and pausing.


async def runs_and_events_that_wait(shop: EventShop) -> Memo:
    await shop.gather(throttle="1/min", cancel_on={"types": "invoice.void", "key": "data.cents"})
    await shop.app.publish_many([paid("a", 1), paid("b", 1), paid("c", 2)])
    return {"events": {**TAKEN["events"], "void": ["index"]}}


async def runs_that_are_to_be_cancelled(shop: EventShop) -> Memo:
    memo = await runs_and_events_that_wait(shop)
    await shop.app.publish(void())
    return memo


async def an_activity_that_is_paused(shop: EventShop) -> Memo:
    await shop.gather(batch={"size": 2, "wait": "1m"})
    await shop.app.publish(paid("a"))
    await shop.app.events.pause("index")
    await shop.app.publish_many([paid("b"), paid("c")])
    return TAKEN


async def an_activity_that_is_resumed(shop: EventShop) -> Memo:
    memo = await an_activity_that_is_paused(shop)
    events = await shop.events()
    await events._store.run(event_pauses.resume, events._namespace, "index", None)
    return memo


def void() -> semel.EventEnvelope:
    """An invoice is void."""
    return semel.EventEnvelope(event_id="void", source="/shop", type="invoice.void", data={"cents": 1})


@operation(runs_and_events_that_wait, client=True, shop=EventShop)
async def publish_event_that_cancels(shop: EventShop, memo: Memo) -> Any:
    await shop.app.publish(void())


@operation(runs_that_are_to_be_cancelled, shop=EventShop)
async def cancel_runs_for_an_event(shop: EventShop, memo: Memo) -> Any:
    return await (await shop.events()).tick()


@operation(a_batch, client=True, shop=EventShop)
async def pause_and_resume_subscription(shop: EventShop, memo: Memo) -> Any:
    await shop.app.events.pause("index")
    await publish(shop, *EVENTS)
    await shop.app.events.resume("index")


@operation(an_activity_that_is_paused, client=True, shop=EventShop)
async def resume_subscription(shop: EventShop, memo: Memo) -> Any:
    await shop.app.events.resume("index")


@operation(an_activity_that_is_resumed, shop=EventShop)
async def take_in_what_came_meanwhile(shop: EventShop, memo: Memo) -> Any:
    return await (await shop.events()).tick()
