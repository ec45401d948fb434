"""The work of `temporal_sdk.py` for Semel. A module of its own, since workers load it into Temporal's sandbox."""

import semel

app = semel.App(config=None)


@app.task
async def noop() -> int:
    return 1


@app.task(retry=1)
async def add(total: int) -> int:
    return total + 1


@app.workflow
async def nothing(ctx: semel.Context) -> int:
    return 1


@app.workflow
async def by_tasks(ctx: semel.Context, count: int) -> int:
    total = 0
    for _ in range(count):
        total = await ctx.execute_task(add, total)
    return total


@app.workflow
async def by_steps(ctx: semel.Context, count: int) -> int:
    total = 0
    for _ in range(count):
        total = await ctx.step(_add, total)
    return total


async def _add(total: int) -> int:
    return total + 1
