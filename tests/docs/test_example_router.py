"""Alerts that are delivered again and again, a router that is kicked at any time, and an agent with a cooldown."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import semel
from examples.incident_router.ports import Advice, FakeAgent, FakeSensors, FakeTickets, Outside
from tests.conftest import new_world
from tests.docs.played import dies, played
from tests.world import World, ended, eventually

pytestmark = pytest.mark.slow

ROUTER = "incident_router.router"
CHECKOUT = "shop.alert.checkout"
BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)


@pytest.fixture(name="world", params=["sqlite", "postgres", "temporal"])
def _world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return new_world(request.param, tmp_path, request)


@pytest.fixture
def router(world: World) -> Iterator[ModuleType]:
    with played(ROUTER, world) as module:
        module.outside = Outside(FakeAgent(), FakeSensors({"latency": 0.1}), FakeTickets())
        yield module


async def ready(router: ModuleType) -> None:
    await (await router.app.start_workflow(router.set_up, workflow_id="set-up")).result("60s")
    await router.app.apply()


async def agent_of(router: ModuleType, event: str, incident: str = "shop.error_rate") -> Any:
    """What became of the agent that was called for `opened:1`, and the like."""
    handle = await eventually(lambda: router.app.find(f"agent:{incident}:{event}", kind="workflow"))
    return await handle.result("60s")


async def test_an_alert_that_comes_three_times_opens_one_incident(world: World, router: ModuleType) -> None:
    """From the webhook to the ticket; the same alert opens it again under the next number (A32)."""
    async with world.worker(router.app):
        await ready(router)
        for number, (severity, event, became) in enumerate(
            (
                ("warning", "opened:1", "briefed"),
                ("critical", "escalated:2", "briefed"),
                (None, "closed:3", "briefed"),
                ("warning", "opened:4", "cooling down"),
                ("critical", "escalated:5", "briefed"),
                (None, "closed:6", "briefed"),
            )
        ):
            deliveries = [
                await router.receive(router.make_alert(BEGIN + timedelta(minutes=number), severity)) for _ in range(3)
            ]
            assert [one.duplicate for one in deliveries] == [False, True, True]
            assert deliveries[0].event_id == f"/monitoring#{(BEGIN + timedelta(minutes=number)).isoformat()}"
            assert await agent_of(router, event, CHECKOUT) == became
            assert await deliveries[2].runs[0].result("60s") == number + 1
    assert await world.sql("select severity, sequence, briefed from incident where id = 'shop.alert.checkout'") == [
        (0, 6, 5)
    ]
    assert await world.sql("select cursor from incident_scope") == [(6,)]
    assert len(router.outside.tickets.filed) == 3  # a closed one needs none


async def test_alerts_that_come_while_nobody_looks_are_read_in_their_order(world: World, router: ModuleType) -> None:
    """An alert that began and ended between two looks is two changes, not none."""
    kick, lost = router.kick, asyncio.Event()

    async def lose(scope: str, at: datetime) -> None:
        lost.set()

    router.kick = lose
    async with world.worker(router.app):
        await ready(router)
        for number, severity in enumerate(("critical", None, "critical", None)):
            await router.receive(router.make_alert(BEGIN + timedelta(minutes=number), severity))
            await eventually(lambda newest=number + 1: has_signals(world, newest))
        assert lost.is_set()
        router.kick = kick
        events = {event: await agent_of(router, event, CHECKOUT) for event in ("opened:1", "closed:2", "closed:4")}
        assert set(events.values()) <= {"briefed", "cooling down"}
        assert (events["closed:2"], events["closed:4"]) == ("briefed", "briefed")
        assert await agent_of(router, "opened:3", CHECKOUT) in ("briefed", "cooling down")


async def has_signals(world: World, newest: int) -> bool:
    return await world.sql("select newest from incident_scope") == [(newest,)]


async def test_an_alert_that_is_late_opens_nothing(world: World, router: ModuleType) -> None:
    """Webhooks come in any order: what was over before its beginning came stays over."""
    async with world.worker(router.app):
        await ready(router)
        over = await router.receive(router.make_alert(BEGIN + timedelta(minutes=1), None))
        assert await over.runs[0].result("60s") == 1
        late = await router.receive(router.make_alert(BEGIN, "critical"))
        assert await late.runs[0].result("60s") == 0
    assert await world.sql("select severity, sequence from incident where id = 'shop.alert.checkout'") == [(0, 0)]


async def test_the_cooldown_keeps_back_what_flaps_and_nothing_else(world: World, router: ModuleType) -> None:
    async with world.worker(router.app):
        await ready(router)
        for error_rate, event, became in (
            (7.0, "opened:1", "briefed"),
            (0.1, "closed:2", "briefed"),
            (7.0, "opened:3", "cooling down"),
            (25.0, "escalated:4", "briefed"),
            (0.1, "closed:5", "briefed"),
        ):
            router.outside.sensors.values["error_rate"] = error_rate
            await router.kick("shop", world.now())
            assert await agent_of(router, event) == became
        await world.advance("31m")
        router.outside.sensors.values["error_rate"] = 7.0
        await router.kick("shop", world.now())
        assert await agent_of(router, "opened:6") == "briefed"
    assert len(router.outside.agent.briefs) == 5
    assert len(router.outside.tickets.filed) == 3  # a closed one needs none


async def test_the_schedule_kicks_the_router_of_its_bucket(world: World, router: ModuleType) -> None:
    async with world.worker(router.app):
        await ready(router)
        router.outside.sensors.values["error_rate"] = 7.0
        to_the_next_slot = 301 - int(world.now().timestamp()) % 300  # much later it would be late, and not run
        await world.advance(f"{to_the_next_slot}s")
        assert await agent_of(router, "opened:1") == "briefed"
        (run, *_) = await router.app.schedules.runs("watch")
        key = f"router:shop:{run.scheduled_for:%Y-%m-%dT%H:%M}"
        assert await router.app.find(key, kind="workflow") is not None


async def test_a_kick_after_the_router_has_finished_is_not_lost(world: World, router: ModuleType) -> None:
    async with world.worker(router.app):
        await ready(router)
        router.outside.sensors.values["error_rate"] = 7.0
        moment = world.now()
        first = await router.kick("shop", moment)
        assert first.key == f"router:shop:{moment.replace(minute=moment.minute // 5 * 5):%Y-%m-%dT%H:%M}"
        assert (await router.kick("shop", moment)).id == first.id
        assert await agent_of(router, "opened:1") == "briefed"
        await eventually(lambda: asleep(first))
        await world.advance("10m")
        assert await first.result("60s") == 1
        router.outside.sensors.values["error_rate"] = 25.0
        again = await router.kick("shop", moment)
        assert (again.key, again.id != first.id) == (first.key, True)
        assert await agent_of(router, "escalated:2") == "briefed"


async def test_a_kick_that_meets_a_router_in_its_last_moment_is_sent_again(world: World, router: ModuleType) -> None:
    """The cursor says that the signal was not seen, so its collector kicks until it was (A31)."""
    kicks: list[datetime] = []
    kick = router.kick

    async def lose_the_first(scope: str, at: datetime) -> None:
        kicks.append(at)
        if len(kicks) > 1:
            await kick(scope, at)

    router.kick = lose_the_first
    async with world.worker(router.app):
        await ready(router)
        published = await router.receive(router.make_alert(BEGIN, "warning"))
        assert await agent_of(router, "opened:1", CHECKOUT) == "briefed"
        assert await published.runs[0].result("60s") == 1
    assert len(kicks) >= 2


async def asleep(handle: semel.Handle[Any]) -> bool:
    return bool(await handle.status() == "waiting")


async def test_agents_outlive_their_router_and_its_worker(world: World, router: ModuleType) -> None:
    asked = asyncio.Event()

    class Slow(FakeAgent):
        async def advise(self, brief: str, key: str) -> Advice:
            asked.set()
            await asyncio.sleep(3600)
            return Advice("never")

    router.outside.agent = Slow()
    router.outside.sensors.values["error_rate"] = 7.0
    async with world.worker(router.app, grace="0s"):
        await ready(router)
        handle = await router.kick("shop", datetime.now(UTC) + timedelta(hours=1))
        await asyncio.wait_for(asked.wait(), 60)
        await eventually(lambda: asleep(handle))
        await handle.terminate("no longer needed")
        assert await ended(handle) == "cancelled"
    router.outside.agent = FakeAgent()
    async with world.worker(router.app):
        assert await agent_of(router, "opened:1") == "briefed"


async def test_of_two_agents_at_once_one_is_briefed(world: World, router: ModuleType) -> None:
    app = router.app
    async with world.worker(app):
        await ready(router)
        router.outside.sensors.values["error_rate"] = 7.0
        async with asyncio.TaskGroup() as group:
            for scope in ("a", "b"):
                group.create_task(router.kick(scope, world.now()))
        await eventually(lambda: len(router.outside.agent.briefs) == 2)
        await world.advance("1h")
        change = router.Change("a.error_rate", "opened", 1, 9)
        handles = [await app.start_workflow(router.brief_agent, change, workflow_id=f"x:{n}") for n in range(5)]
        became = [await handle.result("60s") for handle in handles]
    assert sorted(became) == ["briefed"] + ["cooling down"] * 4


async def test_routers_of_two_buckets_at_once_call_one_agent_for_each_change(world: World, router: ModuleType) -> None:
    """Whoever finds that the other has looked meanwhile looks again, so nobody applies what is old."""
    async with world.worker(router.app):
        await ready(router)
        moment = world.now()
        for number, severity in enumerate(("warning", "critical", None)):
            await router.receive(router.make_alert(BEGIN + timedelta(minutes=number), severity))
            for minutes in (0, 5, 10, 15):
                await router.kick("shop", moment + timedelta(minutes=minutes))
            event = ("opened:1", "escalated:2", "closed:3")[number]
            assert await agent_of(router, event, CHECKOUT) == "briefed"
    assert len(router.outside.agent.briefs) == 3
    assert await world.sql("select agent from decision order by agent") == [
        (f"agent:shop.alert.checkout:{event}",) for event in ("closed:3", "escalated:2", "opened:1")
    ]


async def test_a_user_schedule_in_its_own_namespace_raises_an_alert(world: World) -> None:
    with played("incident_router.scheduler", world, ROUTER) as scheduler:
        governance = scheduler.governance
        scheduler.graphs = scheduler.FakeGraphs(broken={"report"})
        async with world.worker(governance.app), world.worker(scheduler.app):
            await ready(governance)
            await scheduler.create_schedule("record-1", "report", "0 9 * * *")
            assert await ended(await scheduler.app.schedules.trigger("record-1", "one")) == "failed"
            assert await agent_of(governance, "opened:1", "graphs.alert.report") == "briefed"
            scheduler.graphs.broken.clear()
            done = await scheduler.app.schedules.trigger("record-1", "two")
            assert await done.result("60s") == "report is done"
            assert await agent_of(governance, "closed:2", "graphs.alert.report") == "briefed"
        assert await governance.app.find(done.key) is None, "one namespace does not see the other's keys"


CRASH = """
from datetime import UTC, datetime


class Fatal:
    async def advise(self, brief, key):
        os._exit(DEAD)


async def main():
    example.outside.agent = Fatal()
    app = example.app
    async with app, app.worker(lease="300ms"):
        await (await app.start_workflow(example.set_up, workflow_id="set-up")).result("60s")
        await app.apply()
        await example.receive(example.make_alert(datetime.now(UTC), "warning"))
        await asyncio.sleep(60)


asyncio.run(main())
"""


async def test_a_crash_while_the_model_thinks_costs_one_more_call(world: World, router: ModuleType) -> None:
    dies(world, ROUTER, CRASH)
    async with world.worker(router.app):
        assert await agent_of(router, "opened:1", CHECKOUT) == "briefed"
    assert len(router.outside.agent.briefs) == 1
    assert await world.sql("select agent from decision") == [("agent:shop.alert.checkout:opened:1",)]
    assert len(router.outside.tickets.filed) == 1
