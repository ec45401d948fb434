"""The code whose histories are kept in `histories`. Change it only together with them: `record.py` makes them anew."""

from __future__ import annotations

import asyncio

import semel

app = semel.App("temporal://127.0.0.1:7233", config=None)


@app.task(retry=semel.Retry(max_attempts=2, initial="10ms", jitter=0.0))
async def bake(what: str, minutes: int = 1) -> str:
    if what == "soufflé" and semel.current().attempt == 1:
        raise ValueError("it fell")
    return f"{what} ({minutes})"


def weigh(what: str, grams: int) -> int:
    return grams


@app.workflow
async def icing(ctx: semel.Context, colour: str) -> str:
    said = await ctx.wait_signal("stir")
    return f"{colour} {said}"


@app.workflow
async def cake(ctx: semel.Context, name: str) -> list[str]:
    """A step, tasks with and without a key, a timer, a child and a signal to it, and what is told outside."""
    ctx.publish("stage", "flour")
    grams = await ctx.step(weigh, "flour", 500)
    base = await ctx.execute_task(bake, name, grams)
    await ctx.sleep("100ms")
    ctx.search_attributes["name"] = name
    shared = await ctx.execute_task(bake, "soufflé", task_id=f"soufflé-{name}")
    top = await ctx.start_workflow(icing, "pink", workflow_id=f"{name}-icing")
    await top.signal("stir", 3)
    if ctx.patched("cherries"):
        await asyncio.gather(ctx.step(weigh, "cherries", 20), ctx.execute_task(bake, "cherries"))
    return [base, shared, await top.result(), await ctx.wait_signal("eaten", timeout="1h")]


@app.workflow
async def burnt(ctx: semel.Context) -> None:
    try:
        await ctx.wait_signal("smoke", timeout="50ms")
    except TimeoutError:
        raise ValueError("nobody looked") from None


@app.workflow
async def dough(ctx: semel.Context) -> str:
    """Its signal and its timer are found together, since no baker was there."""
    try:
        return await ctx.wait_signal("knead", timeout="2s")
    except TimeoutError:
        return "over-proofed"


@app.workflow
async def batch(ctx: semel.Context, left: int) -> str:
    """Continues as new, which its last run tells from its input."""
    await ctx.execute_task(bake, f"loaf {left}")
    if left:
        ctx.continue_as_new(left - 1)
    return "all of them"


@app.entity
class Oven:
    loaves: int = 0

    @semel.handler
    async def put(self, ctx: semel.EntityContext, loaves: int) -> int:
        await ctx.step(weigh, "loaf", 400)
        self.loaves += loaves
        return self.loaves
