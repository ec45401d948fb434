"""A version that new runs do not begin with cannot be started: it would be the other one, with the wrong arguments."""

from __future__ import annotations

from typing import Any

import pytest

import semel
from tests.world import World, ended, eventually, waits

Definition = semel.Workflow[..., Any]


def orders(world: World, *, both: bool) -> tuple[semel.App, Definition, Definition]:
    """An app, version 1 of its workflow `order`, and a parent that asks for that; with `both` there is a version 2."""
    app = world.app()

    @app.workflow(name="order", version=1)
    async def order_v1(ctx: semel.Context, order: str) -> str:
        await ctx.wait_signal("paid")
        return f"{order} the old way"

    @app.workflow
    async def parent(ctx: semel.Context, patient: bool) -> str:
        try:
            return await ctx.execute_workflow(order_v1, "o-1", workflow_id="child")
        except semel.InvalidValue as error:
            if not patient:
                raise
            said = await ctx.wait_signal("said")
            return f"{said} {error.message}"

    if both:

        @app.workflow(name="order", version=2)
        async def order_v2(ctx: semel.Context, order: str, country: str) -> str:
            return f"{order} to {country}"

    return app, order_v1, parent


async def test_an_old_version_is_refused_at_the_door(world: World) -> None:
    app, order_v1, _ = orders(world, both=True)
    for way in (
        app.start_workflow(order_v1, "o-1", workflow_id="order:o-1"),
        app.start_workflow(order_v1.call("o-1"), workflow_id="order:o-1"),
    ):
        with pytest.raises(semel.InvalidValue, match=r"order_v1 is version 1 .*version 2: start .*order_v2 instead"):
            await way
    assert await app.find("order:o-1", kind="workflow") is None


async def test_so_it_is_inside_of_a_workflow(world: World) -> None:
    app, _, parent = orders(world, both=True)
    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(parent, False, workflow_id="p-1")
        assert await ended(handle) == "failed"
        error = (await handle.describe()).error
        assert error is not None
        assert "start" in error.message
        patient = await waits(await app.start_workflow(parent, True, workflow_id="p-2"))
    async with world.worker(app, cached_workflows=0):  # it is refused again when that is replayed
        await patient.signal("said", "no:")
        assert "no: " in await patient.result(timeout="60s")
    assert [one.ok for one in await app.replay(name="parent")] == [True, True]


async def test_who_asked_before_there_was_another_goes_on(world: World) -> None:
    before, _, parent = orders(world, both=False)
    async with world.worker(before):
        handle = await before.start_workflow(parent, False, workflow_id="p")
        await waits(handle)
        child = await eventually(lambda: before.find("child", kind="workflow"))
        await waits(child)
    after, _, _ = orders(world, both=True)
    async with world.worker(after):
        await child.signal("paid")
        assert await handle.result(timeout="60s") == "o-1 the old way"
