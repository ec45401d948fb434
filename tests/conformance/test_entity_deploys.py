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
        await meter.ask("add", 5, timeout="60s")
        await asyncio.gather(meter.send("nap"), meter.send("add", 1))
        await waits(await found(app))
    again = new.entity(register(new, "new"), "m")
    async with world.worker(new, cached_workflows=cached):
        assert (await again.state()).unit == "kWh"
        assert await world.advance_until(again.ask("add", 1, timeout="60s")) == "107 kWh"
    async with world.worker(app, cached_workflows=cached):  # rolled back: it does not lose the field, it waits
        with pytest.raises(semel.ResultPending):
            await meter.ask("add", 1, dedup_key="late", timeout="500ms")
    async with world.worker(new, cached_workflows=cached):
        assert await again.ask("add", 1, dedup_key="late", timeout="60s") == "108 kWh"


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
        assert await world.advance_until(again.ask("add", 1, timeout="60s")) == "102 kWh"


async def test_what_is_forbidden_waits_for_code_that_does_not_do_it(world: World) -> None:
    app, new = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    async with world.worker(app):
        await meter.ask("add", 1, timeout="60s")
        await meter.send("reach")
        await meter.send("add", 1)
        await eventually(lambda: parked(app, "Forbidden"))
    again = new.entity(register(new, "new"), "m")
    async with world.worker(new):
        assert await again.ask("add", 1, timeout="60s") == "1003 kWh"


async def found(app: semel.App) -> semel.Handle[None]:
    handle = await app.find("Meter/m", kind="entity")
    assert handle is not None
    return handle


async def parked(app: semel.App, why: str) -> bool:
    error = (await (await found(app)).describe()).error
    return error is not None and why in error.type


@pytest.mark.parametrize("change", ["gone", "renamed", "retyped"])
async def test_a_message_that_does_not_fit_waits_for_code_that_takes_it(world: World, change: str) -> None:
    """It was looked at when it was sent, so it is the code that is wrong: neither the message nor its key is spent."""
    app, changed, right = world.app(), world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    async with world.worker(app):
        await meter.ask("add", 5, timeout="60s")
    await meter.send("add", 1, dedup_key="first")
    await meter.send("add", 2)

    class Meter:
        total: int = 0

        if change == "renamed":

            @semel.handler
            async def add(self, ctx: semel.EntityContext, amount: int) -> int:
                return amount

        elif change == "retyped":

            @semel.handler("add")
            async def add_text(self, ctx: semel.EntityContext, n: str) -> str:
                return n

        @semel.handler
        async def read(self, ctx: semel.EntityContext) -> int:
            return self.total

    changed.entity(name="Meter")(Meter)
    async with world.worker(changed):
        await eventually(lambda: parked(changed, "NonDeterminism"))
        assert (await changed.entity(Meter, "m").state()).total == 5
    again = right.entity(register(right, "old"), "m")
    async with world.worker(right):
        assert await again.ask("add", 1, dedup_key="first", timeout="60s") == 6
        assert (await again.state()).total == 8


@pytest.mark.journal("on a cluster those that came together wait together")
async def test_messages_before_one_that_does_not_fit_do_not_wait(world: World) -> None:
    app, changed = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")
    await asyncio.gather(meter.send("add", 1), meter.send("add", 2), meter.send("reach"), meter.send("add", 3))

    @changed.entity(name="Meter")
    class Meter:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, n: int) -> None:
            self.total += n

    elsewhere = changed.entity(Meter, "m")

    async def handled() -> bool:
        return (await elsewhere.state()).total == 3

    async with world.worker(changed):
        await eventually(lambda: parked(changed, "NonDeterminism"))
        await world.advance("10s")
        await eventually(handled)


async def test_a_worker_that_does_not_know_the_class_leaves_it_alone(world: World) -> None:
    app, other = world.app(), world.app()
    meter = app.entity(register(app, "old"), "m")

    @other.task
    async def work() -> None: ...

    async with world.worker(other):
        await meter.send("add", 1)
        await (await other.enqueue(work)).result(timeout="60s")
    async with world.worker(app):
        assert await meter.ask("add", 1, timeout="60s") == 2
