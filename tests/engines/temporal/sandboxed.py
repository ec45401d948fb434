"""People's own module, as the sandbox loads it afresh for each workflow. Heavy libraries at its top are not."""

from __future__ import annotations

import asyncio
import time
import uuid
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


def note(what: str) -> str:
    return what


@app.workflow
async def fine(ctx: semel.Context, name: str) -> list[str]:
    said = await ctx.step(note, f"hello {name}")
    await asyncio.sleep(0.01)
    return [said, *(one.__name__ for one in LIBRARIES)]


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
