"""What is taken out of a set by its order, and goes into a command."""

from collections import defaultdict

import semel

app = semel.App()


@app.task
async def charge(name: str) -> None: ...


@app.workflow
async def picks(ctx: semel.Context, names: set[str], by_region: dict[str, set[str]], groups: list[set[str]]) -> None:
    first = list(names)[0]
    await ctx.execute_task(charge, first)  # expect: D11
    await ctx.execute_task(charge, tuple(names)[-1])  # expect: D11
    one = next(iter(names))
    await ctx.execute_task(charge, f"charge {one}")  # expect: D11
    other, *_ = names
    await ctx.execute_task(charge.call(other))  # expect: D11
    await ctx.execute_task(charge, ",".join(names))  # expect: D11
    await ctx.execute_task(charge, ", ".join(n.upper() for n in names))  # expect: D11
    listed = [name.upper() for name in names]
    await ctx.enqueue(charge, listed)  # expect: D11
    await ctx.enqueue(charge, str(listed[:3]))  # expect: D11
    prices = {name: 1 for name in names}
    for name in prices:  # expect: D11
        await ctx.execute_task(charge, name)
    for name, _ in dict.fromkeys(names).items():  # expect: D11
        await ctx.execute_task(charge, name)
    for name in by_region["eu"]:  # expect: D11
        await ctx.execute_task(charge, name)
    for name in by_region.get("us", ()):  # expect: D11
        await ctx.execute_task(charge, name)
    for name in groups[0]:  # expect: D11
        await ctx.execute_task(charge, name)
    found = defaultdict(set)
    for name in found["eu"]:  # expect: D11
        await ctx.execute_task(charge, name)
