"""Sets that are looked at, put in order, or known to hold one."""

import logging
import uuid
from dataclasses import dataclass, field

import semel

app = semel.App()
log = logging.getLogger(__name__)


@dataclass
class Line:
    sku: str
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class Order(Line):
    note: str = ""


@app.task
async def charge(name: str) -> None: ...


@app.workflow
async def looks(ctx: semel.Context, names: set[str], by_region: dict[str, set[str]], prices: dict[str, int]) -> None:
    log.info("names: %s", ", ".join(names))
    log.info("first: %s", list(names)[0])
    ctx.publish("names", list(names))
    await ctx.execute_task(charge, sorted(names)[0])
    await ctx.execute_task(charge, ",".join(sorted(names)))
    await ctx.execute_task(charge, min(names))
    await ctx.execute_task(charge, str(len(list(names))))
    listed = list(names)
    listed.sort()
    await ctx.execute_task(charge, listed[0])
    for name in listed:
        await ctx.execute_task(charge, name)
    (only,) = names
    await ctx.execute_task(charge, only)
    chosen = next(name for name in names if name == "ada")
    await ctx.execute_task(charge, chosen)
    by_name = {name: 1 for name in names}
    await ctx.execute_task(charge, str(by_name["ada"]))
    for name in sorted(by_name):
        await ctx.execute_task(charge, name)
    for name in sorted(by_region["eu"]):
        await ctx.execute_task(charge, name)
    for name in prices:
        await ctx.execute_task(charge, name)


@app.workflow
async def knows(ctx: semel.Context, names: set[str]) -> None:
    if len(names) == 1:
        await ctx.execute_task(charge, next(iter(names)))


@app.workflow
async def gives(ctx: semel.Context) -> None:
    lines = [Line("tea", id=str(ctx.uuid4())), Line("milk", str(ctx.uuid4())), Order("jam", str(ctx.uuid4()), "x")]
    await ctx.execute_task(charge, lines[0].id)


@app.workflow
async def ends(ctx: semel.Context, names: list[str]) -> int:
    try:
        await ctx.sleep(1)
    finally:
        for name in names:
            if not name:
                continue
            break
    try:
        number = int("1")
    finally:
        number = 2
    return number
