"""An activity is paused for events: what comes meanwhile is kept, and runs by itself after it is resumed, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import semel
from semel.contract.events import EventState, OutcomeState
from semel.engines.journal import event_pauses
from tests.world import World, eventually


def paid(id: str, **more: Any) -> semel.EventEnvelope:
    """An invoice was paid."""
    return semel.EventEnvelope(event_id=id, source="/shop", type="invoice.paid", **more)


class Shop:
    """A task that runs for invoices that were paid."""

    def __init__(self, world: World, **options: Any) -> None:
        self.app = world.app()
        self.seen: list[str] = []

        @self.app.on_event("invoice.paid", id="bill", **options)
        @self.app.task(name="bill")
        async def bill(events: list[semel.EventEnvelope]) -> None:
            self.seen.append(" ".join(event.event_id for event in events))

    async def open(self) -> Shop:
        await self.app.apply()
        return self

    async def paused(self) -> tuple[bool, str | None]:
        (one,) = await self.app.events.subscriptions()
        return one.paused_at is not None, one.note


async def test_what_comes_while_it_is_paused_runs_by_itself_later(world: World) -> None:
    shop = await Shop(world).open()
    other = Shop(world)
    await other.app.publish(paid("before"))
    await shop.app.events.pause("bill", "printer is out")
    assert await shop.paused() == (True, "printer is out")
    assert any(one.what == "paused activities" and "bill" in one.detail for one in await shop.app.doctor())
    receipt = await other.app.publish(paid("e1"))
    assert (receipt.state, receipt.runs) == (EventState.ROUTED, ())
    assert [one.state for one in receipt.outcomes] == [OutcomeState.PAUSED]
    await other.app.publish_many([paid("e2"), paid("e1")])
    async with world.worker(shop.app):
        await eventually(lambda: shop.seen == ["before"])
        await world.advance("1d")
        assert shop.seen == ["before"]
        await shop.app.events.resume("bill")
        await other.app.publish(paid("e3"))
        await eventually(lambda: len(shop.seen) == 4)
    assert sorted(shop.seen) == ["before", "e1", "e2", "e3"]
    assert await shop.paused() == (False, None)
    page = await shop.app.events.get("e1")
    assert [(one.state, one.run) for one in page.outcomes] == [(OutcomeState.STARTED, "activity-bill:e1")]
    assert [run.key for run in page.runs] == ["activity-bill:e1"]


async def test_a_replay_runs_while_it_is_paused_and_not_again_afterwards(world: World) -> None:
    shop = await Shop(world).open()
    await shop.app.events.pause("bill")
    await shop.app.publish_many([paid("e1"), paid("e2")])
    async with world.worker(shop.app):
        replayed = await shop.app.events.replay("e1")
        assert [one.state for one in replayed.outcomes] == [OutcomeState.STARTED]
        await replayed.runs[0].result("60s")
        assert (await shop.app.events.replay("e1")).runs == (), "it has run"
        await shop.app.events.resume("bill")
        await eventually(lambda: len(shop.seen) == 2)
        page = await shop.app.events.get("e1")
        await shop.app.publish(paid("e3"))
        await eventually(lambda: "e3" in shop.seen)
    assert sorted(shop.seen) == ["e1", "e2", "e3"]
    assert [(run.key, run.generation) for run in page.runs] == [("activity-bill:e1", 0)]


async def test_a_window_does_not_close_while_it_is_paused(world: World) -> None:
    shop = await Shop(world, debounce="10m").open()
    await shop.app.publish(paid("e1"))
    await shop.app.events.pause("bill")
    async with world.worker(shop.app):
        await world.advance("20m")
        await shop.app.publish(paid("e2"))
        assert (await shop.app.events.get("e1")).outcomes[0].state is OutcomeState.GATHERED
        await shop.app.events.resume("bill")
        await world.advance("11m")
        await eventually(lambda: " ".join(shop.seen) == "e1 e2")


async def test_many_events_are_taken_in_in_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_pauses, "PAUSED_AT_ONCE", 3)
    shop = await Shop(world, batch={"size": 4, "wait": "1h"}).open()
    await shop.app.events.pause("bill")
    await shop.app.publish_many([paid(f"e{number}") for number in range(8)])
    await shop.app.events.resume("bill")
    async with world.worker(shop.app):
        await eventually(lambda: len(shop.seen) == 2)
    assert sorted(shop.seen) == ["e0 e1 e2 e3", "e4 e5 e6 e7"]


async def test_no_event_is_lost_between_pausing_and_resuming(world: World) -> None:
    shop = await Shop(world).open()
    others = [Shop(world) for _ in range(2)]

    async def publish(at: int) -> None:
        for number in range(10):
            await others[at].app.publish(paid(f"e{at}-{number}"))

    async def toggle() -> None:
        for _ in range(4):
            await shop.app.events.pause("bill")
            await shop.app.events.resume("bill")

    await asyncio.gather(publish(0), publish(1), toggle())
    async with world.worker(shop.app):
        await eventually(lambda: len(shop.seen) == 20)
    assert sorted(shop.seen) == sorted(f"e{at}-{number}" for at in range(2) for number in range(10))


async def test_who_resumes_may_die_and_a_worker_goes_on(world: World) -> None:
    shop = await Shop(world).open()
    await shop.app.events.pause("bill")
    await shop.app.publish(paid("e1"))
    events: Any = await shop.app.engine.events()
    engine = getattr(events, "inner", events)
    await engine._store.run(event_pauses.resume, engine._namespace, "bill", None)  # and no more
    async with world.worker(shop.app):
        await eventually(lambda: shop.seen == ["e1"])
    assert await shop.paused() == (False, None)


async def test_a_paused_activity_that_is_deleted_drops_its_events(world: World) -> None:
    shop = await Shop(world).open()
    await shop.app.events.pause("bill")
    await shop.app.publish(paid("e1"))
    other = world.app()
    await other.apply(prune=True)
    async with world.worker(other):

        async def dropped() -> bool:
            return (await other.events.get("e1")).outcomes[0].state is OutcomeState.DROPPED

        await eventually(dropped)
    with pytest.raises(semel.NotFound, match="semel apply"):
        await other.events.pause("bill")
    with pytest.raises(semel.NotFound, match="semel apply"):
        await other.events.resume("bill")


async def test_resuming_what_is_not_paused_changes_nothing(world: World) -> None:
    shop = await Shop(world).open()
    await shop.app.events.resume("bill", "why not")
    assert await shop.paused() == (False, None)
