"""Workflows of `shop.py` as an earlier deploy had them: what it began goes on with the later code."""

from __future__ import annotations

import semel
from tests.stored.shop import did

app = semel.App("sqlite:///:memory:", config=None)


@app.workflow(queue="inspection")
async def inspect(ctx: semel.Context) -> str:
    await ctx.step(did, "look", name="look")
    await ctx.wait_signal("go")
    return await ctx.step(did, "sign", name="sign")


@app.workflow
async def gift(ctx: semel.Context) -> list[str]:
    return [await ctx.step(did, "write a card", name="card"), await ctx.wait_signal("sent")]


@app.workflow
async def label(ctx: semel.Context) -> str:
    said = await ctx.wait_signal("print")
    return await ctx.step(did, f"write {said}", name="write")
