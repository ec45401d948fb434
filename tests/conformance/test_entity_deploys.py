"""Entities live through deploys: new fields have their defaults, and code that cannot go on waits for code that can."""

import asyncio
import logging
import socket
from typing import Any

import pytest

import semel
from tests.world import World, eventually, waits

pytestmark = pytest.mark.slow


def register(app: semel.App, version: str) -> Any:
    if version == "old":

        @app.entity(name="Meter")
        class Meter:
            total: int = 0

            @semel.handler
            async def add(self, ctx: semel.EntityContext, n: int) -> int:
                self.total += n
                return self.total

            @semel.handler
            async def nap(self, ctx: semel.EntityContext) -> int:
                await ctx.sleep("1h")
                self.total += 100
                return self.total

            @semel.handler
            async def reach(self, ctx: semel.EntityContext) -> int:
                socket.create_connection(("localhost", 1))
                return 0

        return Meter

    @app.entity(name="Meter")
    class NewMeter:
        total: int = 0
        unit: str = "kWh"

        @semel.handler
        async def add(self, ctx: semel.EntityContext, n: int) -> str:
            self.total += n
            return f"{self.total} {self.unit}"

        @semel.handler
        async def nap(self, ctx: semel.EntityContext) -> str:
            if version == "broken":
                ctx.search_attributes["slept"] = "badly"
            await ctx.sleep("1h")
            self.total += 100
            return f"{self.total} {self.unit}"

        @semel.handler
        async def reach(self, ctx: semel.EntityContext) -> str:
            self.total += 1000
            return f"{self.total} {self.unit}"

    return NewMeter


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_new_field_has_its_default(world: World, cached: int) -> None:
    app, new = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    async with world.worker(app, cached_workflows=cached):
        await meter.ask("add", 5, timeout="20s")
        await asyncio.gather(meter.send("nap"), meter.send("add", 1))
        await waits(await found(app))
    again = new.entity(register(new, "new"), "m")
    async with world.worker(new, cached_workflows=cached):
        assert (await again.state()).unit == "kWh"
        assert await world.advance_until(again.ask("add", 1, timeout="20s")) == "107 kWh"
    async with world.worker(app, cached_workflows=cached):  # rolled back: it does not lose the field, it waits
        with pytest.raises(semel.ResultPending):
            await meter.ask("add", 1, dedup_key="late", timeout="500ms")
    async with world.worker(new, cached_workflows=cached):
        assert await again.ask("add", 1, dedup_key="late", timeout="20s") == "108 kWh"


async def test_code_that_does_something_else_waits_for_code_that_does_not(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app, broken, new = world.app(), world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    async with world.worker(app):
        await meter.send("nap")
        await waits(await found(app))
    elsewhere = broken.entity(register(broken, "broken"), "m")
    with caplog.at_level(logging.CRITICAL):
        async with world.worker(broken):
            await elsewhere.send("add", 1)
            await eventually(lambda: parked(broken, "NonDeterminism"))
    again = new.entity(register(new, "new"), "m")
    async with world.worker(new):
        assert await world.advance_until(again.ask("add", 1, timeout="20s")) == "102 kWh"


async def test_what_is_forbidden_waits_for_code_that_does_not_do_it(world: World) -> None:
    app, new = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    async with world.worker(app):
        await meter.ask("add", 1, timeout="20s")
        await meter.send("reach")
        await meter.send("add", 1)
        await eventually(lambda: parked(app, "Forbidden"))
    again = new.entity(register(new, "new"), "m")
    async with world.worker(new):
        assert await again.ask("add", 1, timeout="20s") == "1003 kWh"


async def found(app: semel.App) -> semel.Handle[None]:
    handle = await app.find("Meter/m", kind="entity")
    assert handle is not None
    return handle


async def parked(app: semel.App, why: str) -> bool:
    error = (await (await found(app)).describe()).error
    return error is not None and why in error.type


async def test_a_handler_that_is_gone_fails_its_message(world: World) -> None:
    app, new = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    await meter.send("add", 1)

    @new.entity(name="Meter")
    class Meter:
        total: int = 0

        @semel.handler
        async def read(self, ctx: semel.EntityContext) -> int:
            return self.total

    async with world.worker(new):
        with pytest.raises(semel.TaskFailed, match="has no handler 'add'"):
            await meter.ask("add", 1, timeout="20s")
        assert await new.entity(Meter, "m").ask("read", timeout="20s") == 0


async def test_a_worker_that_does_not_know_the_class_leaves_it_alone(world: World) -> None:
    app, other = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")

    @other.task
    async def work() -> None: ...

    async with world.worker(other):
        await meter.send("add", 1)
        await (await other.enqueue(work)).result(timeout="20s")
    async with world.worker(app):
        assert await meter.ask("add", 1, timeout="20s") == 2
