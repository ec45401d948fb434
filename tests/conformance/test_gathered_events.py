"""Events that are gathered run once, together: after a quiet time, or in batches, each window under its exact id."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import semel
from semel.contract.events import EventState, OutcomeState
from semel.triggers.ids import window_run_id
from tests.world import World, eventually


def edited(id: str, **more: Any) -> semel.EventEnvelope:
    """A document was edited."""
    data = {"doc": more.pop("doc", "a"), **more.pop("data", {})}
    return semel.EventEnvelope(event_id=id, source="/docs", type="doc.edited", data=data, **more)


class Office:
    """A task that runs for documents that were edited, and notes which events its runs had."""

    def __init__(self, world: World, **options: Any) -> None:
        self.app = world.app()
        self.seen: list[tuple[str, ...]] = []
        self.keys: list[str] = []
        self.fails = False

        @self.app.on_event("doc.edited", id="index", **options)
        @self.app.task(name="index", retry=1)
        async def index(events: list[semel.EventEnvelope], newest: semel.EventEnvelope, run: semel.Run) -> str:
            assert events[-1] == newest
            assert run.event_id == newest.event_id
            self.seen.append(tuple(event.event_id for event in events))
            self.keys.append(run.key)
            if self.fails:
                raise ValueError("no index")
            return newest.event_id

    async def open(self) -> Office:
        await self.app.apply()
        return self


async def test_a_debounce_runs_once_with_all_events_after_a_quiet_time(world: World) -> None:
    office = await Office(world, debounce="10m").open()
    first = await office.app.publish(edited("e1"))
    assert (first.state, first.runs) == (EventState.ROUTED, ())
    (outcome,) = first.outcomes
    assert (outcome.activity, outcome.state, outcome.option) == ("index", OutcomeState.GATHERED, "debounce")
    assert outcome.until is not None
    async with world.worker(office.app):
        await world.advance("6m")
        await office.app.publish(edited("e2"))
        await world.advance("6m")
        again = await office.app.publish(edited("e1"))
        assert (again.duplicate, again.runs) == (True, ())
        assert office.seen == [], "e2 has put it off"
        await world.advance("5m")
        await eventually(lambda: office.seen == [("e1", "e2")])
    key = window_run_id("index", "debounce", None, "e1")
    assert office.keys == [key]
    for id in ("e1", "e2"):
        page = await office.app.events.get(id)
        assert [(one.state, one.run) for one in page.outcomes] == [(OutcomeState.STARTED, key)]
        assert [run.key for run in page.runs] == [key]
    assert (await office.app.publish(edited("e2"))).runs[0].key == key
    assert await office.app.find(key) is not None
    assert "2 gathered events: e1, e2" in str(await office.app.explain(key))


async def test_an_older_event_never_takes_the_place_of_a_newer_one(world: World) -> None:
    office = await Office(world, debounce="10m").open()
    now = world.now()
    await office.app.publish(edited("new", time=now))
    await office.app.publish(edited("old", time=now.replace(year=2020)))
    async with world.worker(office.app):
        await world.advance("11m")
        await eventually(lambda: office.seen == [("old", "new")])
        late = await office.app.publish(edited("late", time=now.replace(year=2021)))
        assert [one.state for one in late.outcomes] == [OutcomeState.DROPPED]
        assert "older than event 'new'" in (late.outcomes[0].reason or "")
        page = await office.app.events.get("late")
        assert (page.runs, page.outcomes) == ((), late.outcomes)
        replayed = await office.app.events.replay("late")
        assert await replayed.runs[0].result("60s") == "late", "an operator may"


async def test_an_event_of_the_future_does_not_make_all_others_old(world: World) -> None:
    office = await Office(world, debounce="10m").open()
    await office.app.publish(edited("early", time=world.now().replace(year=2099)))
    async with world.worker(office.app):
        await world.advance("11m")
        await eventually(lambda: office.seen == [("early",)])
        await office.app.publish(edited("next"))
        await world.advance("11m")
        await eventually(lambda: office.seen == [("early",), ("next",)])


async def test_events_that_keep_coming_run_after_the_longest_wait(world: World) -> None:
    office = await Office(world, debounce={"wait": "10m", "max_wait": "25m"}).open()
    async with world.worker(office.app):
        for number in range(4):
            await office.app.publish(edited(f"e{number}"))
            await world.advance("8m")
        await eventually(lambda: office.seen == [("e0", "e1", "e2", "e3")])


async def test_each_key_has_a_window_of_its_own(world: World) -> None:
    office = await Office(world, debounce={"wait": "10m", "key": "data.doc"}).open()
    await office.app.publish_many([edited("a1"), edited("b1", doc="b"), edited("a2"), edited("x", doc="a b:c")])
    lost = await office.app.publish(edited("lost", doc=None))
    assert (lost.state, lost.outcomes) == (EventState.UNMATCHED, ())
    assert lost.problem is not None
    assert "data.doc" in lost.problem, "an event without a key does not match, and says so"
    async with world.worker(office.app):
        await world.advance("11m")
        await eventually(lambda: len(office.seen) == 3)
    assert sorted(office.seen) == [("a1", "a2"), ("b1",), ("x",)]
    assert sorted(office.keys) == sorted(
        window_run_id("index", "debounce", key, first) for key, first in (("a", "a1"), ("b", "b1"), ("a b:c", "x"))
    )


async def test_a_batch_runs_when_it_is_full_and_when_its_time_is_over(world: World) -> None:
    office = await Office(world, batch={"size": 3, "wait": "1h"}).open()
    receipts = await office.app.publish_many([edited(f"e{number}") for number in range(7)])
    key = window_run_id("index", "batch", None, "e0")
    assert [[run.key for run in one.runs] for one in receipts[:3]] == [[key]] * 3
    assert [one.outcomes[0].state.value for one in receipts] == ["started"] * 6 + ["gathered"]
    async with world.worker(office.app):
        await eventually(lambda: len(office.seen) == 2)
        await world.advance("61m")
        await eventually(lambda: len(office.seen) == 3)
    assert sorted(office.seen) == [("e0", "e1", "e2"), ("e3", "e4", "e5"), ("e6",)]


async def test_publishers_in_parallel_lose_no_event_and_gather_none_twice(world: World) -> None:
    office = await Office(world, batch={"size": 5, "wait": "1h", "key": "data.doc"}).open()
    others = [Office(world, batch={"size": 5, "wait": "1h", "key": "data.doc"}) for _ in range(3)]
    events = [edited(f"{doc}{number}", doc=doc) for number in range(11) for doc in "abc"]
    await asyncio.gather(*(one.app.publish(event) for one in (office, *others) for event in events))
    async with world.worker(office.app):
        await eventually(lambda: len(office.seen) == 6)
        await world.advance("61m")
        await eventually(lambda: len(office.seen) == 9)
    ran = [event for run in office.seen for event in run]
    assert sorted(ran) == sorted(event.event_id for event in events)
    assert sorted(len(run) for run in office.seen) == [1, 1, 1, 5, 5, 5, 5, 5, 5]
    assert all(len({event[0] for event in run}) == 1 for run in office.seen)


async def test_a_run_of_gathered_events_is_replayed_with_all_of_them(world: World) -> None:
    office = await Office(world, batch={"size": 2, "wait": "1h"}).open()
    office.fails = True
    _, receipt = await office.app.publish_many([edited("e1"), edited("e2")])
    async with world.worker(office.app):
        with pytest.raises(semel.ExecutionFailed):
            await receipt.runs[0].result("60s")
        office.fails = False
        replayed = await office.app.events.replay("e1")
        assert [run.key for run in replayed.runs] == [receipt.runs[0].key]
        assert await replayed.runs[0].result("60s") == "e2"
        assert (await office.app.events.replay("e2")).runs == (), "what completed is left alone"
    assert office.seen == [("e1", "e2"), ("e1", "e2")]
    (run,) = (await office.app.events.get("e2")).runs
    assert run.generation == 1


async def test_an_event_that_is_delivered_later_is_gathered_then(world: World) -> None:
    from datetime import timedelta

    office = await Office(world, batch={"size": 2, "wait": "1h"}).open()
    at = world.now() + timedelta(minutes=5)
    await office.app.publish_many([edited("e1"), edited("e2")], deliver_at=at)
    async with world.worker(office.app):
        await world.advance("6m")
        await eventually(lambda: [sorted(run) for run in office.seen] == [["e1", "e2"]])


async def test_a_backfill_is_gathered(world: World) -> None:
    await world.app().publish_many([edited(f"e{number}") for number in range(4)])
    office = await Office(world, batch={"size": 2, "wait": "1h"}).open()
    assert sorted(await office.app.events.backfill("index")) == ["e0", "e1", "e2", "e3"]
    assert await office.app.events.backfill("index") == []
    async with world.worker(office.app):
        await eventually(lambda: len(office.seen) == 2)
    assert sorted(event for run in office.seen for event in run) == ["e0", "e1", "e2", "e3"]


async def test_events_that_wait_are_kept_beyond_their_retention(world: World) -> None:
    office = await Office(world, debounce="40d").open()
    await office.app.publish(edited("e1"))
    await world.advance("35d")
    await (await office.app.engine.events()).forget()  # type: ignore[attr-defined]
    async with world.worker(office.app):
        await world.advance("6d")
        await eventually(lambda: office.seen == [("e1",)])
    await world.advance("31d")
    await (await office.app.engine.events()).forget()  # type: ignore[attr-defined]
    assert await office.app.events.list() == []


async def test_events_of_an_activity_that_is_gone_are_dropped_with_the_reason(world: World) -> None:
    office = await Office(world, debounce="10m").open()
    await office.app.publish(edited("e1"))
    other = world.app()
    await other.apply(prune=True)
    async with world.worker(other):
        await world.advance("11m")

        async def dropped() -> bool:
            return [one.state for one in (await other.events.get("e1")).outcomes] == [OutcomeState.DROPPED]

        await eventually(dropped)
    (outcome,) = (await other.events.get("e1")).outcomes
    assert "not subscribed" in (outcome.reason or "")


async def test_a_window_that_would_not_fit_is_closed_before(world: World) -> None:
    office = await Office(world, batch={"size": 100, "wait": "1h"}).open()
    large = {"text": "x" * 200_000}
    receipts = await office.app.publish_many([edited(f"e{number}", data=large) for number in range(3)])
    assert [one.outcomes[0].state.value for one in receipts] == ["started", "started", "gathered"]
    huge = await office.app.publish(edited("huge", data={"text": "x" * 700_000}))
    assert huge.state is EventState.PARKED
    assert "batch" in (huge.problem or "")
    async with world.worker(office.app):
        await world.advance("61m")
        await eventually(lambda: sorted(event for run in office.seen for event in run) == ["e0", "e1", "e2"])


async def test_an_activity_of_several_tasks_gets_all_events(world: World) -> None:
    from semel.triggers import ActivityDefinition, EventTriggerConfig, TaskSpec

    app = world.app()

    @app.task
    async def count(events: list[semel.EventEnvelope]) -> int:
        return len(events)

    @app.task
    async def newest(event: semel.EventEnvelope) -> str:
        return event.event_id

    trigger = EventTriggerConfig(types="doc.edited", batch={"size": 2, "wait": "1h"})
    app.activity(
        ActivityDefinition(
            activity_id="both", triggers=trigger, tasks=[TaskSpec(task_type="count"), TaskSpec(task_type="newest")]
        )
    )
    await app.apply()
    _, receipt = await app.publish_many([edited("e1"), edited("e2")])
    async with world.worker(app):
        assert await receipt.runs[0].result("60s") == [2, "e2"]
