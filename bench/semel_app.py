"""The app that is measured. `SEMEL_URL` says where it lives."""

import asyncio

import semel


async def noop() -> int:
    return 1


def noop_sync() -> int:
    return 1


async def steps(ctx: semel.Context, count: int) -> int:
    for _ in range(count):
        await ctx.step(noop)
    return count


async def sleeper(ctx: semel.Context, until: float) -> None:
    await asyncio.sleep(until - ctx.now().timestamp())


async def waker(ctx: semel.Context, until: float) -> None:
    await asyncio.sleep(until - ctx.now().timestamp())


class Counter:
    total: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, number: int) -> None:
        self.total += number


def build(url: str | None = None) -> semel.App:
    """Another app with the same tasks, on the same database or another one."""
    made = semel.App(url, auto_migrate=True)
    made.task(noop)
    made.task(noop_sync)
    for workflow in (steps, sleeper, waker):
        made.workflow(workflow)
    made.entity(Counter)
    return made


app = build()
