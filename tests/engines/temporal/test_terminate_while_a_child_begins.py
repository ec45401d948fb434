"""A worker starts a child whose key was used before: it goes with its parent, also if that ends meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import semel
from semel.engine.protocol import Admission
from semel.engine.start_request import StartRequest
from semel.engines.temporal.cluster import Cluster
from tests.temporal_world import TemporalWorld
from tests.world import SOON, ended, eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("when", ["before", "after"])
async def test_it_ends_with_a_parent_that_was_terminated_meanwhile(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """`before`: the worker has not started it yet; `after`: it has, and has not said so."""
    app = cluster.app()
    reached, released = asyncio.Event(), asyncio.Event()
    start = Cluster.start

    async def held_up(whole: Cluster, request: StartRequest) -> Admission:
        if request.parent is None:
            return await start(whole, request)
        if when == "after":
            await start(whole, request)
        reached.set()
        await released.wait()
        return await start(whole, request)

    @app.workflow
    async def child(ctx: semel.Context) -> None:
        await asyncio.sleep(3600)

    @app.workflow
    async def parent(ctx: semel.Context) -> None:
        await ctx.start_workflow(child, workflow_id="c", on_parent_close="cancel")

    before = await app.start_workflow(child, workflow_id="c")
    await before.cancel()
    monkeypatch.setattr(Cluster, "start", held_up)

    async def begun() -> semel.Handle[Any] | None:
        found = await app.find("c", kind="workflow")
        return None if found is None or found.id == before.id else found

    async with cluster.worker(app):
        handle = await app.start_workflow(parent, workflow_id="p")
        await asyncio.wait_for(reached.wait(), SOON)
        await handle.terminate()
        if when == "before":
            released.set()
        assert await ended(await eventually(begun)) == "cancelled"
        released.set()
