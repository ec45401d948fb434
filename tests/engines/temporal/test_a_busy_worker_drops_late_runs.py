"""On a cluster the first attempt of a run waits no longer for a worker than its start deadline says."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import semel
from semel.contract.slot_policy import SkipReason
from tests.temporal_world import TemporalWorld
from tests.world import eventually


async def test_a_run_behind_a_busy_worker_is_dropped_by_the_cluster(cluster: TemporalWorld) -> None:
    """The worker has looked at it, as a workflow, and has no room for its task."""
    app = cluster.app()
    free, began = asyncio.Event(), list[str]()

    @app.task
    async def hold() -> None:
        await free.wait()

    @app.task
    async def report(run: semel.Run) -> None:
        began.append(run.key)

    async with cluster.worker(app, concurrency=1):
        held = await app.enqueue(hold)
        await eventually(lambda: _runs(held))
        at = cluster.now().replace(microsecond=0) + timedelta(seconds=2)
        await app.schedules.put("once", report, at=at, start_deadline="3s")

        async def dropped() -> bool:
            return [one.reason for one in await app.schedules.skipped("once")] == [SkipReason.DEADLINE]

        await eventually(dropped)
        free.set()
        await held.result("60s")
    assert began == []


async def _runs(handle: semel.Handle[None]) -> bool:
    return await handle.status() is semel.Status.RUNNING
