"""A DedupWindow works inside of people's own workflows: in the sandbox, and through continue-as-new."""

from __future__ import annotations

import pytest

from tests.engines.temporal.tenants import QUEUE, their_worker
from tests.temporal_world import TemporalWorld
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow


async def test_messages_that_come_again_count_once_also_in_the_next_run(cluster: TemporalWorld) -> None:
    app, client = cluster.app(), await cluster.client()
    async with their_worker(client, max_cached_workflows=0):  # each task replays what was before
        handle = await app.start_workflow("RewardsWorkflow", 0, None, workflow_id="eve", task_queue=QUEUE)
        for _ in range(3):
            await handle.signal("add_points", {"key": "order-1", "points": 10})
        await handle.signal("turn")
        first = handle.id.partition("@")[0]

        async def turned() -> bool:
            return (await client.get_workflow_handle("eve").describe()).run_id != first

        await eventually(turned)
        await handle.signal("add_points", {"key": "order-1", "points": 10})
        await handle.signal("add_points", {"key": "order-2", "points": 5})
        await handle.signal("end")
        assert await handle.result(timeout=SOON) == {"points": 15, "duplicates": 3}
