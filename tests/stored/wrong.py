"""A deploy of `shop.py` that did not fit what was under way: it parks what it finds."""

from __future__ import annotations

import semel
from tests.stored.shop import did

app = semel.App("sqlite:///:memory:", config=None)


@app.workflow(queue="inspection")
async def inspect(ctx: semel.Context) -> str:
    await ctx.step(did, "look away", name="look-away")
    await ctx.wait_signal("go")
    return "nothing seen"
