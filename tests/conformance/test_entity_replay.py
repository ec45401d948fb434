"""What entities have recorded can be tried against other code: their state, and a message that is under way."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

import semel
from tests.world import World, eventually, waits


def meters(world: World, *, unit: bool = False, warm: bool = False) -> semel.App:
    """An app; with a `unit` its state has a field more, and a `warm` one does something else before it sleeps."""
    app = world.app()

    @dataclass
    class Meter:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, n: int) -> int:
            self.total += n
            return self.total

        @semel.handler
        async def nap(self, ctx: semel.EntityContext) -> int:
            if warm:
                await ctx.step(lambda: "warm", name="warm")
            await ctx.sleep("1h")
            self.total += 100
            return self.total

    @dataclass
    class WithUnit(Meter):
        unit: str = "kWh"

    app.entity(name="Meter")(WithUnit if unit else Meter)
    return app


async def found(app: semel.App, id: str = "m") -> semel.Handle[Any]:
    handle = await app.find(f"Meter/{id}", kind="entity")
    assert handle is not None
    return handle


async def at_rest(world: World, app: semel.App) -> semel.Handle[Any]:
    async with world.worker(app):
        meter = app.entity(app.tasks.entity("Meter").cls, "m")
        await meter.ask("add", 5, timeout="60s")
    await world.listed()
    return await found(app)


async def under_way(world: World, app: semel.App) -> semel.Handle[Any]:
    async with world.worker(app):
        meter = app.entity(app.tasks.entity("Meter").cls, "m")
        await meter.ask("add", 5, timeout="60s")
        await meter.send("nap")

        async def naps() -> bool:
            return (await (await found(app)).describe()).run_at is not None

        await eventually(naps)
    await world.listed()
    return await waits(await found(app))


async def test_the_state_is_read_with_the_class_of_today(world: World) -> None:
    app, newer = meters(world), meters(world, unit=True)
    await at_rest(world, newer)
    assert [(one.key, one.name, one.ok) for one in await newer.replay()] == [("Meter/m", "Meter", True)]
    (bad,) = await app.replay()
    assert (bad.ok, "`unit`" in bad.error) == (False, True)


async def test_a_message_that_is_under_way_is_replayed(world: World) -> None:
    app = meters(world)
    await under_way(world, app)
    assert [one.ok for one in await app.replay(name="Meter")] == [True]
    (bad,) = await meters(world, warm=True).replay()
    assert not bad.ok
    assert "step" in bad.found


async def test_one_that_has_ended_has_nothing_to_go_on_with(world: World) -> None:
    newer = meters(world, unit=True)
    handle = await at_rest(world, newer)
    await handle.terminate("enough")
    await world.listed()
    assert await meters(world).replay() == []


async def test_an_exported_one_replays_anywhere(world: World) -> None:
    app, newer = meters(world), meters(world, unit=True)
    text = await (await at_rest(world, newer)).export()
    data = json.loads(text)
    assert (data["kind"], data["workflow"], data["key"]) == ("entity", "Meter", "Meter/m")
    assert data["snapshot"]["input"] == {"total": 5, "unit": "kWh"}
    assert newer.replay_history(text).ok
    assert "`unit`" in app.replay_history(text).error
    assert "no entity 'Meter'" in world.app().replay_history(text).error


@pytest.mark.journal("on a cluster the journal of a message that is under way is Temporal's own")
async def test_one_that_is_exported_in_the_middle_of_a_message(world: World) -> None:
    app = meters(world)
    handle = await under_way(world, app)
    text = await handle.export()
    assert app.replay_history(text).ok
    bad = meters(world, warm=True).replay_history(text)
    assert ("timer" in bad.expected, "warm" in bad.found, __file__ in bad.where) == (True, True, True)


async def test_doctor_tells_of_parked_ones(world: World) -> None:
    app, newer = meters(world), meters(world, unit=True)
    await at_rest(world, newer)
    assert all(finding.ok for finding in await app.doctor() if "park" in finding.what or "stuck" in finding.what)
    async with world.worker(app):
        await app.entity(app.tasks.entity("Meter").cls, "m").send("add", 1)
        handle = await found(app)

        async def parked() -> bool:
            return (await handle.describe()).error is not None

        await eventually(parked)
        told = [finding.detail for finding in await app.doctor() if not finding.ok]
        assert any("Meter/m" in detail for detail in told)
