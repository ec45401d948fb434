"""Only what no worker has ever had ends without its code, however old the news is that a canceller has of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

import semel
from semel import Status
from semel.engines.temporal.executions import Reader, Seen
from tests.temporal_world import TemporalWorld
from tests.world import ended, eventually

pytestmark = pytest.mark.slow


async def test_one_that_a_worker_takes_meanwhile_cleans_up(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, did = cluster.app(), list[str]()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        try:
            await ctx.step(did.append, "booked", name="book")
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await ctx.step(did.append, "undone", name="undo")
            raise

    handle = await app.start_workflow(flow, workflow_id="k")
    reader = Reader(await cluster.client(), timedelta(days=30))
    old = [await reader.find(handle.id)]
    find = Reader.find

    async def find_late(self: Reader, execution: str) -> Seen | None:
        return old.pop() if old and execution == handle.id else await find(self, execution)

    async with cluster.worker(app):
        await eventually(lambda: did)
        monkeypatch.setattr(Reader, "find", find_late)
        assert await handle.cancel() is Status.RUNNING
        assert await ended(handle) == "cancelled"
    assert did == ["booked", "undone"]


async def test_one_that_was_asked_to_stop_before_a_worker_came_does_not_begin(cluster: TemporalWorld) -> None:
    app, did = cluster.app(), list[str]()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        did.append("began")
        await ctx.step(did.append, "booked", name="book")

    handle = await app.start_workflow(flow, workflow_id="k")
    await (await cluster.client()).get_workflow_handle("k").cancel()
    async with cluster.worker(app):
        assert await ended(handle) == "cancelled"
    assert did == []


async def test_one_whose_delay_was_over_before_a_worker_came_does_not_begin_either(cluster: TemporalWorld) -> None:
    app, did, client = cluster.app(), list[str](), await cluster.client()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        did.append("began")

    delay, took = 2.0, 2.0
    while took >= delay:  # where a worker takes longer than that to look at it and to stop
        did.clear()
        delay = 2 * took
        begun, key = cluster.time(), f"k{delay}"
        handle = await app.start_workflow(flow, workflow_id=key, delay=delay)
        run = client.get_workflow_handle(key)
        async with cluster.worker(app):
            await eventually(lambda run=run: sleeps(run), 60)
        took = cluster.time() - begun
    await asyncio.sleep(begun + delay + 0.5 - cluster.time())
    await run.cancel()
    async with cluster.worker(app):
        assert await ended(handle) == "cancelled"
    assert did == []


async def sleeps(run: WorkflowHandle[Any, Any]) -> bool:
    return any(event.HasField("timer_started_event_attributes") for event in (await run.fetch_history()).events)
