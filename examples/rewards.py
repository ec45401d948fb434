"""A customer's rewards: an entity that lives for years and handles each message once.

    python examples/rewards.py

Points come from a shop that sends each message until it is acknowledged, so some arrive twice. The entity remembers
keys for three days, at most ten thousand of them: its state stays small however long it lives. Run it again in the
same folder: each message gets the same answer as before, and nothing is counted or mailed twice.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any

from rich import print

import semel

app = semel.App(namespace="rewards")
mails: list[str] = []


class Tier(enum.Enum):
    BASIC = "basic"
    GOLD = "gold"
    PLATINUM = "platinum"


def tier_for(points: int) -> Tier:
    return Tier.PLATINUM if points >= 1_000 else Tier.GOLD if points >= 500 else Tier.BASIC


@app.task
async def congratulate(customer: str, tier: Tier) -> None:
    mails.append(f"{customer} is {tier.value} now")


@app.entity(window="3d", max_keys=10_000)
class Rewards:
    """One customer's points. The annotated attributes are the state."""

    points: int = 0
    tier: Tier = Tier.BASIC

    @semel.handler
    async def add_points(self, ctx: Any, points: int) -> int:
        """Add points; the mail is enqueued in the commit that counts them: both, or neither."""
        if points < 1:
            raise ValueError(f"{points} points")
        self.points += points
        tier = tier_for(self.points)
        if tier is not self.tier:
            self.tier = tier
            await ctx.enqueue(congratulate, ctx.entity_id, tier, task_id=f"tier:{ctx.entity_id}:{tier.value}")
        return self.points

    @semel.handler
    async def leave(self, ctx: Any) -> None:
        """Leave the program; a customer who comes back starts over."""
        ctx.end()

    @semel.query
    def status(self) -> str:
        return f"{self.points} points, {self.tier.value}"

    @semel.idle("730d")
    async def lapse(self, ctx: Any) -> None:
        """Points expire after two years without a message."""
        self.points = 0
        self.tier = Tier.BASIC


async def main() -> None:
    async with app, app.worker():
        ada = app.entity(Rewards, "ada")
        for order, points in (("o-1", 300), ("o-2", 300), ("o-2", 300), ("o-3", 500)):
            print(order, await ada.ask("add-points", points, dedup_key=order, timeout="20s"))
        print(await ada.query("status"))
        for tier in (Tier.GOLD, Tier.PLATINUM):
            mail = await app.find(f"tier:ada:{tier.value}")
            if mail is not None:  # not past its retention
                await mail.result("1m")
    print("mailed by this run:", mails)


if __name__ == "__main__":
    asyncio.run(main())
