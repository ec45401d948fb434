"""Workflows are found by the words they gave themselves."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest

import semel
from tests.world import World, waits


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
            await (await app.start_workflow(order, region, tier, workflow_id=key)).result(timeout="60s")
        await (await app.enqueue(other)).result(timeout="60s")

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


async def test_by_a_word_however_it_is_written(world: World) -> None:
    app = world.app()

    @app.workflow
    async def order(ctx: semel.Context, city: str) -> None:
        ctx.search_attributes["city"] = city

    composed = unicodedata.normalize("NFC", "Zürich")
    apart = unicodedata.normalize("NFD", "Zürich")
    async with world.worker(app):
        for key, city in (("a", composed), ("b", apart)):
            await (await app.start_workflow(order, city, workflow_id=key)).result(timeout="60s")
    for city in (composed, apart):
        assert [e.key for e in await app.list(attributes={"city": city})] == ["b", "a"]


@pytest.mark.parametrize(
    "words", [{"a": 5}, {"a": None}, {"a": ""}, {"a": "x" * 256}, {"a": "\ud800"}, {"": "x"}, {"a b": "x"}, {5: "x"}],
    ids=repr,
)  # fmt: skip
async def test_what_no_workflow_can_have_is_refused(world: World, words: Any) -> None:
    with pytest.raises(semel.InputError, match="search attribute"):
        await world.app().list(attributes=words)


async def test_by_scope_and_incident_key(world: World) -> None:
    app = world.app()

    @app.workflow
    async def incident(ctx: semel.Context, scope: str, key: str) -> None:
        ctx.search_attributes["scope"] = scope
        ctx.search_attributes["incidentKey"] = key
        await ctx.wait_signal("closed")
        del ctx.search_attributes["incidentKey"]

    async with world.worker(app):
        handles = {}
        for scope, key in (("eu", "cpu:eu"), ("us", "cpu:us"), ("eu", "disk:eu")):
            handles[key] = await app.start_workflow(incident, scope, key, workflow_id=key)
            await waits(handles[key], "closed")
        await world.listed()
        assert [e.key for e in await app.list(attributes={"scope": "eu"})] == ["disk:eu", "cpu:eu"]
        both = {"scope": "eu", "incidentKey": "cpu:eu"}
        assert [e.key for e in await app.list(attributes=both)] == ["cpu:eu"]
        await handles["cpu:eu"].signal("closed")
        await handles["cpu:eu"].result(timeout="60s")
        await world.listed()
        assert await app.list(attributes=both) == []
        assert await handles["cpu:eu"].attributes() == {"scope": "eu"}
