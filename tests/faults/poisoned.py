"""An entity with messages that take their process with them."""

from __future__ import annotations

import asyncio
import os
from dataclasses import field
from typing import Any

import semel
from tests.faults.forks import Say
from tests.faults.shop import Shop
from tests.faults.site import Site

DEAD = 13
SPOILT = "spoilt"
"""A line that the state cannot be read back with."""


class Diary:
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if SPOILT in self.lines:
            os._exit(DEAD)

    @semel.handler
    async def note(self, ctx: semel.EntityContext, line: str) -> int:
        self.lines.append(line)
        return len(self.lines)

    @semel.handler
    async def die(self, ctx: semel.EntityContext) -> None:
        self.lines.append("never")
        os._exit(DEAD)

    @semel.handler
    async def die_in_a_step(self, ctx: semel.EntityContext) -> None:
        self.lines.append("never")
        ctx.search_attributes["mood"] = "bad"
        await ctx.step(fine, name="first")
        await ctx.step(os._exit, DEAD, name="second")

    @semel.handler
    async def die_after_a_transaction(self, ctx: semel.EntityContext) -> None:
        self.lines.append("never")
        await ctx.transaction(pay)
        os._exit(DEAD)

    @semel.handler
    async def leave(self, ctx: semel.EntityContext) -> None:
        """Dies, but not of itself: it has left something running."""

        async def work() -> None:
            await ctx.step(os._exit, DEAD, name="second")

        asyncio.get_running_loop().create_task(work())

    @semel.handler
    async def spoil(self, ctx: semel.EntityContext) -> None:
        self.lines.append(SPOILT)


def fine() -> str:
    return "fine"


def pay(tx: Any) -> int:
    tx.execute("insert into till (who) values ($1)", "diary")
    return 1


def diary(shop: Shop) -> semel.Ref[Diary]:
    """The one that all tests write to."""
    shop.app.entity(Diary)
    return shop.app.entity(Diary, "d")


async def worker(say: Say, *, site: dict[str, Any]) -> None:
    """Run everything, also what kills the process."""
    shop = Shop(Site(**site))
    diary(shop)
    await shop.run_all()
