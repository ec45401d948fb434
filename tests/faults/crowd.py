"""What other processes do: children of the fork server, each on its own connection to the same site."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import semel
from tests.faults.forks import Say
from tests.faults.shop import Shop
from tests.faults.site import Site


async def duplicates(say: Say, *, site: dict[str, Any], times: int) -> None:
    """Ask for the same thing many times at once."""
    async with Shop(Site(**site)) as shop:
        handles = await asyncio.gather(*(shop.app.enqueue(shop.charge, "o", task_id="one") for _ in range(times)))
        say({"ids": sorted({handle.id for handle in handles}), "new": sum(not h.duplicate for h in handles)})


async def same_batch(say: Say, *, site: dict[str, Any], order: list[int]) -> None:
    """Ask for the same many things, in another order than the others."""
    async with Shop(Site(**site)) as shop:
        calls = [(shop.charge.call(f"o-{n}"), f"b-{n}") for n in order]
        handles = await shop.app.enqueue_many(calls)
        say(sum(not handle.duplicate for handle in handles))


async def poisoned_worker(say: Say, *, site: dict[str, Any]) -> None:
    """Run everything, also what kills the process."""
    shop = Shop(Site(**site))
    poison(shop)
    await shop.run_all()


def poison(shop: Shop) -> semel.Task[[], None]:
    """A task that takes its process with it."""

    @shop.app.task(name="poison", retry=3)
    async def task() -> None:
        os._exit(13)

    return task


async def drained_worker(say: Say, *, site: dict[str, Any]) -> None:
    """Drain, and be gone in the same instant."""
    shop = Shop(Site(**site))
    async with shop.app.worker():
        say("started")
    os._exit(0)


async def mixed_load(say: Say, *, site: dict[str, Any], who: int, rounds: int) -> None:
    """Clients and a worker in one process."""
    async with Shop(Site(**site)) as shop, shop.app.worker(lease="20s", concurrency=10):
        for n in range(rounds):
            own = shop.app.enqueue(shop.charge, f"p{who}-{n}", task_id=f"p{who}-{n}")
            shared = shop.app.enqueue(shop.charge, f"shared-{n}", task_id=f"shared-{n}")
            for handle in await asyncio.gather(own, shared):
                await handle.result(timeout="30s")
    say("done")
