"""An event cancels runs of events that happened before it, those that go on and those that wait; newer ones go on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import semel
from semel.contract.events import EventState, OutcomeState
from tests.world import World, ended, eventually


def order(type: str, id: str, number: int = 1, **more: Any) -> semel.EventEnvelope:
    """Something happened to an order."""
    return semel.EventEnvelope(event_id=id, source="/shop", type=f"order.{type}", data={"order": number}, **more)


CANCEL = {"types": "order.cancelled", "key": "data.order"}


class Store:
    """A task that runs for orders that were placed, and goes on until it may end."""

    def __init__(self, world: World, **options: Any) -> None:
        self.app = world.app()
        self.seen: list[str] = []
        self.done: list[str] = []
        self.may_end = asyncio.Event()

        @self.app.on_event("order.placed", id="pack", **{"cancel_on": CANCEL, **options})
        @self.app.task(name="pack", retry=1)
        async def pack(event: semel.EventEnvelope) -> str:
            self.seen.append(event.event_id)
            await self.may_end.wait()
            self.done.append(event.event_id)
            return event.event_id

    async def open(self) -> Store:
        await self.app.apply()
        return self

    async def became(self, id: str) -> tuple[OutcomeState, str | None]:
        (outcome,) = (await self.app.events.get(id)).outcomes
        return outcome.state, outcome.reason


async def test_a_run_is_cancelled_and_others_go_on(world: World) -> None:
    store = await Store(world).open()
    one, two = await store.app.publish_many([order("placed", "one"), order("placed", "two", 2)])
    async with world.worker(store.app):
        await eventually(lambda: sorted(store.seen) == ["one", "two"])
        cancelling = await store.app.publish(order("cancelled", "stop"))
        assert (cancelling.state, cancelling.runs) == (EventState.ROUTED, ())
        assert [outcome.state for outcome in cancelling.outcomes] == [OutcomeState.CANCELS]
        assert await ended(one.runs[0]) is semel.Status.CANCELLED
        store.may_end.set()
        assert await two.runs[0].result("60s") == "two"
        await store.app.publish(order("cancelled", "too late", 2))
        again = await store.app.publish(order("placed", "three", 2))
        assert await again.runs[0].result("60s") == "three"
    assert await store.became("one") == (OutcomeState.STARTED, "cancel_on: it was cancelled by event 'stop'")
    assert await store.became("two") == (OutcomeState.STARTED, None)
    assert store.done == ["two", "three"]


async def test_what_happened_before_it_does_not_start_even_if_it_comes_later(world: World) -> None:
    store = await Store(world).open()
    store.may_end.set()
    now = world.now()
    await store.app.publish(order("cancelled", "stop", time=now))
    late = await store.app.publish(order("placed", "late", time=now - timedelta(minutes=1)))
    assert [one.state for one in late.outcomes] == [OutcomeState.DROPPED]
    assert "'stop'" in (late.outcomes[0].reason or "")
    newer = await store.app.publish(order("placed", "newer"))
    async with world.worker(store.app):
        assert await newer.runs[0].result("60s") == "newer"
    assert store.seen == ["newer"]


async def test_events_that_wait_are_dropped(world: World) -> None:
    store = await Store(world, batch={"size": 10, "wait": "1h"}, throttle="1/day").open()
    store.may_end.set()
    await store.app.publish_many([order("placed", "a"), order("placed", "b", 2), order("placed", "c")])
    async with world.worker(store.app):
        await store.app.publish(order("cancelled", "stop"))

        async def dropped() -> bool:
            return (await store.became("c"))[0] is OutcomeState.DROPPED

        await eventually(dropped)
        assert (await store.became("a"))[0] is OutcomeState.DROPPED
        assert (await store.became("b"))[0] is OutcomeState.GATHERED
        await world.advance("61m")
        await eventually(lambda: store.done == ["b"])


async def test_a_throttled_run_is_dropped(world: World) -> None:
    store = await Store(world, throttle="1/hour").open()
    store.may_end.set()
    first, second = await store.app.publish_many([order("placed", "a", 1), order("placed", "b", 2)])
    assert second.outcomes[0].state is OutcomeState.QUEUED
    async with world.worker(store.app):
        await first.runs[0].result("60s")
        await store.app.publish(order("cancelled", "stop", 2))

        async def dropped() -> bool:
            return (await store.became("b"))[0] is OutcomeState.DROPPED

        await eventually(dropped)
        await world.advance("2h")
    assert store.done == ["a"]


async def test_an_event_that_cannot_be_decided_cancels_nothing_and_says_so(world: World) -> None:
    store = await Store(world, cancel_on={**CANCEL, "where": "data.sure"}).open()
    store.may_end.set()
    placed = await store.app.publish(order("placed", "a"))
    unsure = await store.app.publish(order("cancelled", "stop"))
    assert unsure.state is EventState.UNMATCHED
    assert "sure" in (unsure.problem or "")
    async with world.worker(store.app):
        assert await placed.runs[0].result("60s") == "a"
