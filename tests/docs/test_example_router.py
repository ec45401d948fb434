"""A router that may be kicked at any time, agents that outlive it, and a cooldown that keeps nothing urgent back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import semel
from examples.incident_router.ports import Advice, FakeAgent, FakeSensors, FakeTickets, Outside
from tests.docs.played import dies, played
from tests.world import World, ended, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def router(world: World) -> Iterator[ModuleType]:
    with played("incident_router.router", world) as module:
        module.outside = Outside(FakeAgent(), FakeSensors({"latency": 0.1}), FakeTickets())
        yield module


async def ready(router: ModuleType) -> None:
    await (await router.app.start_workflow(router.set_up, workflow_id="set-up")).result("60s")


async def agent_of(router: ModuleType, event: str) -> Any:
    """What became of the agent that was called for `opened:1`, and the like."""
    key = f"agent:shop.error_rate:{event}"
    handle = await eventually(lambda: router.app.find(key, kind="workflow"))
    return await handle.result("60s")


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
        assert await again.result("60s") == 1


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
        handle = await router.kick("shop")
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
                group.create_task(router.kick(scope))
        await eventually(lambda: len(router.outside.agent.briefs) == 2)
        await world.advance("1h")
        change = router.Change("a.error_rate", "opened", 1, 9)
        handles = [await app.start_workflow(router.brief_agent, change, workflow_id=f"x:{n}") for n in range(5)]
        became = [await handle.result("60s") for handle in handles]
    assert sorted(became) == ["briefed"] + ["cooling down"] * 4


CRASH = """
class Fatal:
    async def advise(self, brief, key):
        os._exit(DEAD)


async def main():
    example.outside.agent = Fatal()
    example.outside.sensors.values["error_rate"] = 7.0
    app = example.app
    async with app, app.worker(lease="300ms"):
        await (await app.start_workflow(example.set_up, workflow_id="set-up")).result("60s")
        await example.kick("shop")
        await asyncio.sleep(20)


asyncio.run(main())
"""


async def test_a_crash_while_the_model_thinks_costs_one_more_call(world: World, router: ModuleType) -> None:
    dies(world, "incident_router.router", CRASH)
    async with world.worker(router.app):
        assert await agent_of(router, "opened:1") == "briefed"
    assert len(router.outside.agent.briefs) == 1
    assert await world.sql("select agent from decision") == [("agent:shop.error_rate:opened:1",)]
    assert len(router.outside.tickets.filed) == 1
