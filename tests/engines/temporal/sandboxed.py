"""People's own module, as the sandbox loads it afresh for each workflow. Heavy libraries at its top are not."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import time
import uuid
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import apsw
import asyncpg
import rich
import typer

import semel

app = semel.App("sqlite:///:memory:", config=None)
loaded = uuid.uuid4().hex
"""Another one each time this module is loaded."""
LIBRARIES = (apsw, asyncpg, rich, typer)


@dataclass
class Visit:
    """Values of the standard library, some of whose modules the sandbox wraps."""

    at: datetime
    days: list[date]
    noon: dt.time
    stay: timedelta
    id: uuid.UUID
    price: decimal.Decimal


def note(what: str) -> str:
    return what


@app.workflow
async def fine(ctx: semel.Context, name: str) -> list[str]:
    said = await ctx.step(note, f"hello {name}")
    await asyncio.sleep(0.01)
    return [said, *(one.__name__ for one in LIBRARIES)]


def postpone(visit: Visit) -> Visit:
    return Visit(visit.at + visit.stay, visit.days, visit.noon, visit.stay, visit.id, visit.price)


@app.workflow
async def dated(ctx: semel.Context, at: datetime, days: dict[str, date], visit: Visit) -> tuple[datetime, Visit]:
    later = await ctx.step(postpone, visit)
    assert isinstance(later.at, datetime)
    assert isinstance(days["first"], date)
    assert ctx.now() > datetime(2020, 1, 1, tzinfo=dt.UTC)
    return at + timedelta(days=1), later


@app.workflow
async def where(ctx: semel.Context) -> str:
    return loaded


@app.workflow
async def looks_at_the_clock(ctx: semel.Context) -> float:
    await ctx.step(note, "first")
    return time.time()


@app.workflow
async def opens_a_file(ctx: semel.Context) -> str:
    await ctx.step(note, "first")
    return Path("/etc/hostname").read_text()  # noqa: ASYNC240


async def looks_up() -> float:
    return time.time()


@app.workflow
async def in_a_group(ctx: semel.Context) -> None:
    await ctx.step(note, "first")
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(3600))
        group.create_task(looks_up())


@app.workflow
async def in_gather(ctx: semel.Context) -> None:
    await ctx.step(note, "first")
    await asyncio.gather(asyncio.sleep(3600), looks_up())


@app.workflow
async def waits_for_either(ctx: semel.Context) -> list[str]:
    """Temporal's own loop refuses these two, since their order differs there."""
    waiting = [asyncio.create_task(ctx.step(note, name, name=name)) for name in ("first", "second")]
    await asyncio.wait(waiting)
    return [await one for one in asyncio.as_completed([ctx.step(note, "third")])] + [one.result() for one in waiting]


@app.workflow
async def in_wait(ctx: semel.Context) -> float:
    done, _ = await asyncio.wait([asyncio.create_task(looks_up())])
    return done.pop().result()


@app.workflow
async def in_an_argument(ctx: semel.Context) -> str:
    return await ctx.step(note, f"it is {time.time()}")


@app.workflow
async def while_it_cleans_up(ctx: semel.Context) -> float:
    try:
        await ctx.step(note, "first")
    finally:
        time.time()
    return 0.0


@app.entity
class Clock:
    """Its handler may not look at the clock of the machine."""

    looked: int = 0

    @semel.handler
    async def look(self, ctx: semel.EntityContext) -> int:
        self.looked += 1
        await ctx.step(note, "first")
        async with asyncio.TaskGroup() as group:
            group.create_task(looks_up())
        return self.looked

    @semel.handler
    async def glance(self, ctx: semel.EntityContext) -> int:
        self.looked += 1
        time.time()
        return self.looked
