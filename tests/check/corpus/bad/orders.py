"""Sets that decide the order of commands."""

import asyncio

import semel

app = semel.App()


@app.task
async def charge(name: str) -> None: ...


async def pay(ctx: semel.Context, name: str) -> None:
    await ctx.execute_task(charge, name)


def letters(names: list[str]) -> set[str]:
    return {letter for name in names for letter in name}


@app.workflow
async def loops(ctx: semel.Context, names: list[str], given: set[str], frozen: "frozenset[str] | None") -> None:
    for name in {"a", "b"}:  # expect: D11
        await ctx.execute_task(charge, name)
    for name in set(names):  # expect: D11
        ctx.publish(name)
    for name in given:  # expect: D11
        await pay(ctx, name)
    for name in frozen:  # expect: D11
        await pay(ctx, name)
    unique = set(names) | {"c"}
    for name in unique:  # expect: D11
        await asyncio.sleep(1)
    for at, name in enumerate(list(unique)):  # expect: D11
        await asyncio.sleep(at)
    for name in {n.lower() for n in names} - given:  # expect: D11
        await asyncio.sleep(1)
    await asyncio.gather(*[pay(ctx, name) for name in unique])  # expect: D11
    await asyncio.gather(*(ctx.execute_task(charge, n) for n in given))  # expect: D11
    tasks = [asyncio.create_task(pay(ctx, n)) for n in unique]  # expect: D11
    done, pending = await asyncio.wait(tasks)
    for task in done:  # expect: D11
        await task
    for name in letters(names):  # expect: D11
        await asyncio.sleep(1)
    for name in {"a": 1}.keys() & names:  # expect: D11
        await asyncio.sleep(1)
    first = unique.pop()  # expect: D11
    await asyncio.sleep(len(first))


@app.entity("basket")
class Basket:
    def __init__(self) -> None:
        self.names = set()

    @semel.handler("pay")
    async def pay(self, ctx: semel.Context) -> None:
        for name in self.names:  # expect: D11
            await ctx.execute_task(charge, name)
