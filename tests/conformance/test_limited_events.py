"""Runs for events are limited: what is over a limit runs by itself later, or is dropped with its reason."""

from __future__ import annotations

import asyncio
from typing import Any

import semel
from semel.contract.events import OutcomeState
from tests.world import World, ended, eventually


def asked(id: str, user: str = "ann", **more: Any) -> semel.EventEnvelope:
    """A user asked for a report."""
    return semel.EventEnvelope(event_id=id, source="/site", type="report.asked", data={"user": user}, **more)


class Desk:
    """A task that runs for reports that were asked for; while `open` is not set, its runs go on and on."""

    def __init__(self, world: World, **options: Any) -> None:
        self.app = world.app()
        self.seen: list[str] = []
        self.done: list[str] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

        @self.app.on_event("report.asked", id="report", **options)
        @self.app.task(name="report", retry=1)
        async def report(event: semel.EventEnvelope) -> str:
            self.seen.append(event.event_id)
            await self.may_end.wait()
            self.done.append(event.event_id)
            return event.event_id

    async def open(self) -> Desk:
        await self.app.apply()
        return self

    async def became(self, id: str) -> OutcomeState:
        (outcome,) = (await self.app.events.get(id)).outcomes
        return outcome.state


async def test_what_is_over_a_throttle_runs_by_itself_later(world: World) -> None:
    desk = await Desk(world, throttle="2/hour").open()
    receipts = await desk.app.publish_many([asked(f"e{number}") for number in range(5)])
    states = [one.outcomes[0].state.value for one in receipts]
    assert states == ["started", "started", "queued", "queued", "queued"]
    assert all(one.outcomes[0].until is not None for one in receipts[2:])
    async with world.worker(desk.app):
        await eventually(lambda: len(desk.seen) == 2)
        await world.advance("61m")
        await eventually(lambda: len(desk.seen) == 4)
        await world.advance("61m")
        await eventually(lambda: len(desk.seen) == 5)
    assert sorted(desk.seen) == [f"e{number}" for number in range(5)]
    assert [run.key for run in (await desk.app.events.get("e4")).runs] == ["activity-report:e4"]


async def test_a_throttle_counts_for_each_key(world: World) -> None:
    desk = await Desk(world, throttle={"rate": "1/hour", "key": "data.user"}).open()
    receipts = await desk.app.publish_many([asked("a1"), asked("b1", "bob"), asked("a2")])
    assert [one.outcomes[0].state.value for one in receipts] == ["started", "started", "queued"]


async def test_gathered_events_are_throttled_as_one_run(world: World) -> None:
    app = world.app()
    seen: list[tuple[str, ...]] = []

    @app.on_event("report.asked", id="report", batch={"size": 2, "wait": "1d"}, throttle="1/hour")
    @app.task(name="report")
    async def report(events: list[semel.EventEnvelope]) -> None:
        seen.append(tuple(event.event_id for event in events))

    await app.apply()
    receipts = await app.publish_many([asked(f"e{number}") for number in range(4)])
    assert [one.outcomes[0].state.value for one in receipts] == ["started", "started", "queued", "queued"]
    async with world.worker(app):
        await eventually(lambda: seen == [("e0", "e1")])
        await world.advance("61m")
        await eventually(lambda: seen == [("e0", "e1"), ("e2", "e3")])
    page = await app.events.get("e2")
    assert page.outcomes[0].run == page.runs[0].key


async def test_what_is_over_a_rate_limit_is_dropped_with_its_reason(world: World) -> None:
    desk = await Desk(world, rate_limit={"rate": "1/hour", "key": "data.user"}).open()
    receipts = await desk.app.publish_many([asked("e1"), asked("e2"), asked("b1", "bob")])
    assert [one.outcomes[0].state.value for one in receipts] == ["started", "dropped", "started"]
    assert "rate_limit: 1 have started" in (receipts[1].outcomes[0].reason or "")
    assert "dropped (rate_limit" in str(await desk.app.explain("activity-report:e2"))
    again = await desk.app.publish(asked("e2"))
    assert again.duplicate
    assert again.outcomes == receipts[1].outcomes, "what was dropped stays so"
    async with world.worker(desk.app):
        await eventually(lambda: sorted(desk.done) == ["b1", "e1"])
        await world.advance("61m")
        assert (await desk.app.publish(asked("e3"))).outcomes[0].state is OutcomeState.STARTED
        await eventually(lambda: "e3" in desk.done)
        replayed = await desk.app.events.replay("e2")
        assert await replayed.runs[0].result("60s") == "e2", "an operator may"
        assert await desk.became("e2") is OutcomeState.STARTED


async def test_publishers_in_parallel_do_not_exceed_a_rate_limit(world: World) -> None:
    desks = [await Desk(world, rate_limit="3/hour").open() for _ in range(3)]
    receipts = await asyncio.gather(
        *(desk.app.publish(asked(f"e{number}-{at}")) for at, desk in enumerate(desks) for number in range(5))
    )
    states = [one.outcomes[0].state.value for one in receipts]
    assert (states.count("started"), states.count("dropped")) == (3, 12)


async def test_an_event_is_skipped_while_a_run_is_going(world: World) -> None:
    desk = await Desk(world, singleton={"mode": "skip", "key": "data.user"}).open()
    desk.may_end.clear()
    first = await desk.app.publish(asked("e1"))
    async with world.worker(desk.app):
        await eventually(lambda: desk.seen == ["e1"])
        skipped = await desk.app.publish(asked("e2"))
        assert skipped.outcomes[0].state is OutcomeState.DROPPED
        assert "'e1' is still going" in (skipped.outcomes[0].reason or "")
        other = await desk.app.publish(asked("b1", "bob"))
        assert other.outcomes[0].state is OutcomeState.STARTED
        desk.may_end.set()
        await first.runs[0].result("60s")
        third = await desk.app.publish(asked("e3"))
        assert third.outcomes[0].state is OutcomeState.STARTED
        await third.runs[0].result("60s")
    assert sorted(desk.done) == ["b1", "e1", "e3"]


async def test_a_newer_event_cancels_the_run_that_is_going_and_starts_after_it(world: World) -> None:
    desk = await Desk(world, singleton="cancel").open()
    desk.may_end.clear()
    first = await desk.app.publish(asked("e1"))
    async with world.worker(desk.app):
        await eventually(lambda: desk.seen == ["e1"])
        second = await desk.app.publish(asked("e2"))
        assert second.outcomes[0].state in (OutcomeState.QUEUED, OutcomeState.STARTED)
        assert await ended(first.runs[0]) is semel.Status.CANCELLED
        await eventually(lambda: desk.seen == ["e1", "e2"])
        desk.may_end.set()
        await eventually(lambda: desk.done == ["e2"])
    assert await desk.became("e2") is OutcomeState.STARTED


async def test_of_events_that_wait_for_a_run_only_the_newest_starts(world: World) -> None:
    desk = await Desk(world, singleton="cancel").open()
    now = world.now()
    await desk.app.publish_many(
        [asked("e1"), asked("e2", time=now), asked("e3"), asked("old", time=now.replace(year=2020))]
    )
    assert [await desk.became(id) for id in ("e2", "old")] == [OutcomeState.DROPPED, OutcomeState.DROPPED]
    async with world.worker(desk.app):
        await eventually(lambda: "e3" in desk.done)
    assert desk.done == ["e3"] or desk.done == ["e1", "e3"]


async def test_a_run_that_would_start_beside_a_newer_event_is_not_started(world: World) -> None:
    desk = await Desk(world, singleton="cancel").open()
    first = await desk.app.publish(asked("e1"))
    await desk.app.publish(asked("e2"))
    assert await ended(first.runs[0]) is semel.Status.CANCELLED
    third = await desk.app.publish(asked("e3"))  # with it, e2 is released: its turn has come
    assert third.outcomes[0].state is OutcomeState.STARTED
    assert await desk.became("e2") is OutcomeState.DROPPED
    async with world.worker(desk.app):
        assert await third.runs[0].result("60s") == "e3"
    assert desk.seen == ["e3"]


async def test_of_events_published_together_only_the_newest_starts(world: World) -> None:
    desk = await Desk(world, singleton="cancel").open()
    receipts = await desk.app.publish_many([asked("e1"), asked("e2"), asked("e3")])
    assert [one.outcomes[0].state.value for one in receipts] == ["dropped", "dropped", "started"]
    async with world.worker(desk.app):
        await eventually(lambda: desk.done == ["e3"])
    assert desk.seen == ["e3"]


async def test_a_redelivery_is_no_further_event_for_a_limit(world: World) -> None:
    desk = await Desk(world, rate_limit="2/hour").open()
    for _ in range(3):
        await desk.app.publish(asked("e1"))
    assert (await desk.app.publish(asked("e2"))).outcomes[0].state is OutcomeState.STARTED
    assert (await desk.app.publish(asked("e3"))).outcomes[0].state is OutcomeState.DROPPED
