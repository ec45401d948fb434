"""Workflows that are reset again and again while they run, have children and get signals, still end as they should."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import semel
from tests.world import World

ROUNDS = 5


def define(app: semel.App) -> semel.Workflow[..., list[int]]:
    @app.task
    async def task(key: str, at: int) -> int:
        await asyncio.sleep(random.random() * 0.01)
        return at

    @app.workflow
    async def child(ctx: semel.Context, at: int) -> int:
        return int(await ctx.step(lambda: at, name="inner"))

    @app.workflow
    async def flow(ctx: semel.Context, key: str) -> list[int]:
        got: list[int] = []
        for at in range(ROUNDS):
            got.append(await ctx.step(lambda at=at: at, name="step"))
            got += await asyncio.gather(
                ctx.execute_task(task, key, at), ctx.execute_workflow(child, at, workflow_id=f"child-{key}-{at}")
            )
            await asyncio.sleep(0.005)
            got.append(await ctx.wait_signal("n"))
        return got

    return flow


@pytest.mark.slow
async def test_resets_at_any_moment_lose_nothing(world: World) -> None:
    here, there, outside = world.app(), world.app(), world.app()
    dice = random.Random(11)
    define(here), define(there)
    flow = define(outside)

    async def one(key: str) -> semel.Handle[list[int]]:
        handle: semel.Handle[Any] = await outside.start_workflow(flow, key, workflow_id=key)
        for n in range(ROUNDS):
            await handle.signal("n", n, dedup_key=f"{key}-{n}")
        for _ in range(4):
            await asyncio.sleep(dice.random() * 0.3)
            past = await outside.engine.past(handle.id)
            assert past is not None
            handle = await handle.reset(f"row:{dice.randint(0, len(past.commits))}")
        return handle

    async with world.worker(here), world.worker(there):
        for handle in await asyncio.gather(*(one(f"k{n}") for n in range(5))):
            assert await handle.result(timeout="100s") == [at for at in range(ROUNDS) for _ in range(4)]
    assert await world.left() == 0
