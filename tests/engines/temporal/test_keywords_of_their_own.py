"""Temporal's own tools find workflows by `scope` and `incidentKey`, search attributes of type Keyword."""

from __future__ import annotations

from temporalio.api.enums.v1 import IndexedValueType

import semel
from semel.engines.temporal.namespace import look
from tests.temporal_world import TemporalWorld
from tests.world import eventually, waits


async def test_workflows_are_found_by_them(cluster: TemporalWorld) -> None:
    app = cluster.app()

    @app.workflow
    async def incident(ctx: semel.Context, scope: str) -> None:
        ctx.search_attributes["scope"] = scope
        ctx.search_attributes["incidentKey"] = f"cpu:{scope}"
        ctx.search_attributes["team"] = "night"
        await ctx.wait_signal("closed")
        del ctx.search_attributes["scope"]
        await ctx.wait_signal("forgotten")

    client = await cluster.client()

    async def found(query: str) -> list[str]:
        return sorted([one.id async for one in client.list_workflows(query)])

    async with cluster.worker(app):
        handles = [await app.start_workflow(incident, scope, workflow_id=scope) for scope in ("eu", "us")]
        for handle in handles:
            await waits(handle, "closed")

        async def both_found() -> bool:
            return await found("scope = 'eu'") == ["eu"] and await found("incidentKey STARTS_WITH 'cpu:'") == [
                "eu",
                "us",
            ]

        await eventually(both_found)
        await handles[0].signal("closed")
        await waits(handles[0], "forgotten")

        async def gone() -> bool:
            return await found("scope = 'eu'") == [] and await found("incidentKey = 'cpu:eu'") == ["eu"]

        await eventually(gone)
        for handle in handles:
            await handle.terminate()
    kept = await look(client)
    assert kept is not None
    keyword = IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
    assert (kept.types["scope"], kept.types["incidentKey"]) == (keyword, keyword)
