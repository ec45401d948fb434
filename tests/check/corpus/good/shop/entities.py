"""Entities and helpers that are in order."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import semel
from semel import Context as Ctx
from semel import handler

from .application import app


@dataclass
class Line:
    name: str
    tags: list[str] = field(default_factory=list)
    place: Path = field(default_factory=Path)

    @cached_property
    def upper(self) -> str:
        return self.name.upper()


@app.entity("basket", window="1d")
class Basket:
    lines: list[Line]

    def __init__(self) -> None:
        self.lines = []
        self.names: list[str] = []

    @handler("add")
    async def add(self, ctx: Ctx, name: str) -> None:
        self.lines.append(Line(name))
        self.names.append(self.lines[-1].upper)
        await asyncio.sleep(1)

    @semel.query
    def size(self) -> int:
        return len(self.lines)

    @semel.idle("1h")
    async def close(self, ctx: Ctx) -> None:
        for name in sorted(set(self.names)):
            await ctx.step(Basket.write, name)

    @staticmethod
    def write(name: str) -> None:
        Path(name).write_text(str(time.time()))

    def for_tests(self) -> None:
        print(self.lines)


def elsewhere(framework):
    @framework.workflow
    def job(name):
        print(name)

    return job
