"""An entity begins a new history when one gets long: nothing is lost or doubled, and histories stay short."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engines.temporal.inside import entity
from tests.conftest import new_world
from tests.temporal_world import TemporalWorld
from tests.world import eventually, waits

pytestmark = pytest.mark.slow
SHORT = 40
"""Events after which entities of these tests begin anew."""


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TemporalWorld:
    monkeypatch.setattr(entity, "LONG", SHORT)
    made = new_world("temporal", tmp_path, request)
    assert isinstance(made, TemporalWorld)
    return made


def register(app: semel.App) -> Any:
    @app.task
    async def fetch(n: int) -> int:
        return n

    @app.entity
    class Meter:
        total: int = 0
        reminders: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, n: int = 1) -> int:
            self.total += n
            return self.total

        @semel.handler
        async def fetch(self, ctx: semel.EntityContext, n: int = 1) -> int:
            self.total += await ctx.execute_task(fetch, n)
            return self.total

        @semel.handler
        async def nap(self, ctx: semel.EntityContext) -> int:
            await ctx.sleep("1h")
            return self.total

        @semel.idle("10h")
        async def remind(self, ctx: semel.EntityContext) -> None:
            self.reminders += 1

    return Meter


async def runs(world: TemporalWorld, key: str) -> list[int]:
    """How long the history of each run is, the newest first."""
    client = await world.client()
    found: list[int] = []
    run: str | None = None
    while True:
        history = await client.get_workflow_handle(f"entity:{key}", run_id=run).fetch_history()
        found.append(len(history.events))
        run = history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not run:
            return found


async def test_a_burst_through_many_histories_and_workers(world: TemporalWorld) -> None:
    """Keys before and after are skipped, from several senders at once, and while workers come and go."""
    app = world.app()
    meter = app.entity(register(app), "m")
    senders = [world.app() for _ in range(3)]
    refs = [one.entity(register(one), "m") for one in senders]
    dice = random.Random(7)

    async def send(ref: Any, of: int) -> None:
        for n in range(of, 250, len(refs)):
            await ref.send("add", dedup_key=f"k{n}")
            if dice.random() < 0.3:
                await ref.send("add", dedup_key=f"k{dice.randint(0, n)}")  # seen or not, it counts once

    async def work() -> None:
        for _ in range(4):
            async with world.worker(app, cached_workflows=dice.choice([0, 100])):
                await asyncio.sleep(0.7)

    await asyncio.gather(work(), *(send(ref, n) for n, ref in enumerate(refs)))
    async with world.worker(app):
        for n in dice.sample(range(250), 40):
            await meter.send("add", dedup_key=f"k{n}")
        assert await meter.ask("add", 0, timeout="30s") == 250
        assert await meter.ask("add", dedup_key="k0", timeout="30s") <= 250  # the answer that the first one got
    assert len(await runs(world, meter.key)) >= 2  # while no worker was there, signals made one longer
    explained = await app.explain(meter.key, kind="entity")
    assert len(explained.executions) == 1


async def test_three_thousand_messages(world: TemporalWorld, capsys: pytest.CaptureFixture[str]) -> None:
    app = world.app()
    meter = app.entity(register(app), "m")
    async with world.worker(app):
        began = time.perf_counter()
        for start in range(0, 3000, 500):
            await asyncio.gather(*(meter.send("add", dedup_key=f"k{start + n}") for n in range(500)))
        assert await meter.ask("add", 0, timeout="60s") == 3000
        spent = time.perf_counter() - began
    with capsys.disabled():
        print(f"\n3,000 keyed messages to one entity on Temporal: {3000 / spent:,.0f}/s")
    assert sum(await runs(world, meter.key)) < 1500
    assert await world.kept_keys() == 3001


async def test_messages_that_wait_go_along(world: TemporalWorld) -> None:
    """Each handler waits for a task, so that there is never a rest: it begins anew between two messages."""
    app = world.app()
    meter = app.entity(register(app), "m")
    await asyncio.gather(*(meter.send("fetch", dedup_key=f"k{n % 60}") for n in range(120)))
    async with world.worker(app):
        assert await meter.ask("fetch", timeout="60s") == 61
    lengths = await runs(world, meter.key)
    assert len(lengths) >= 3
    assert max(lengths) <= 4 * SHORT


async def test_who_asks_while_it_begins_anew(world: TemporalWorld) -> None:
    app = world.app()
    meter = app.entity(register(app), "m")
    async with world.worker(app):
        answers = await asyncio.gather(*(meter.ask("fetch", dedup_key=f"k{n}", timeout="60s") for n in range(30)))
        assert sorted(answers) == list(range(1, 31))
        assert len(await runs(world, meter.key)) >= 2
        again = await asyncio.gather(*(meter.ask("fetch", dedup_key=f"k{n}", timeout="60s") for n in range(30)))
        assert again == answers


async def test_idle_time_goes_on(world: TemporalWorld) -> None:
    app = world.app()
    meter = app.entity(register(app), "m")
    async with world.worker(app):
        for _ in range(2 * SHORT // 4):
            await meter.ask("add", timeout="60s")
        assert len(await runs(world, meter.key)) >= 2
        await world.advance("9h")
        assert (await meter.state()).reminders == 0
        await world.advance("61m")
        await eventually(lambda: reminded(meter))


async def reminded(meter: Any) -> bool:
    return bool((await meter.state()).reminders)


async def test_it_naps_through_a_burst(world: TemporalWorld) -> None:
    app = world.app()
    meter = app.entity(register(app), "m")
    async with world.worker(app):
        await meter.send("nap")
        handle = await app.find(meter.key, kind="entity")
        assert handle is not None
        await waits(handle)
        for start in range(0, 60, 10):
            await asyncio.gather(*(meter.send("add", dedup_key=f"k{start + n}") for n in range(10)))
    async with world.worker(app):
        assert await world.advance_until(meter.ask("add", 0, timeout="30s")) == 60
