"""Workflows are found by the words they gave themselves."""

from __future__ import annotations

import semel
from tests.world import World


async def test_by_one_word_by_several_and_by_none_that_is_there(world: World) -> None:
    app = world.app()

    @app.workflow
    async def order(ctx: semel.Context, region: str, tier: str) -> None:
        ctx.search_attributes["region"] = region
        ctx.search_attributes["tier"] = "unknown"
        ctx.search_attributes["tier"] = tier

    @app.task
    async def other() -> None: ...

    async with world.worker(app):
        for key, region, tier in (("a", "eu", "gold"), ("b", "eu", "basic"), ("c", "us", "gold")):
            await (await app.start_workflow(order, region, tier, workflow_id=key)).result(timeout="20s")
        await (await app.enqueue(other)).result(timeout="20s")

    async def found(**words: str) -> list[str | None]:
        return [e.key for e in await app.list(attributes=words)]

    assert await found(region="eu") == ["b", "a"]
    assert await found(region="eu", tier="gold") == ["a"]
    assert await found(tier="unknown") == []
    assert await found(region="eu", colour="red") == []
    assert [e.key for e in await app.list(attributes={"tier": "gold"}, status="completed", limit=1)] == ["c"]
    first = (await app.list(attributes={"tier": "gold"}))[0]
    assert [e.key for e in await app.list(attributes={"tier": "gold"}, before=first.id)] == ["a"]
    assert await app.list(attributes={"tier": "gold"}, status="failed") == []
