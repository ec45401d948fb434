"""What other processes do: children of the fork server, each on its own connection to the same site."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
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
                await handle.result(timeout="100s")
    say("done")


async def real_worker(say: Say, *, site: dict[str, Any], lease: str, seconds: float) -> None:
    """A worker by the real clock, for a while or until it is killed. Its tasks take a moment."""
    shop = Shop(Site(**site))
    slow_tasks(shop, 0.02)
    async with shop.app.worker(lease=lease, concurrency=5, grace="5s"):
        say({"pid": os.getpid()})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()
    await shop.app.close()


def slow_tasks(shop: Shop, moment: float) -> semel.Task[[str], str]:
    """An effect, and then some time in which the process may die."""

    @shop.app.task(name="slow", retry=semel.Retry(max_attempts=1000, initial="10ms"))
    async def slow(order: str) -> str:
        await asyncio.sleep(moment)
        shop.ledger.record_here()
        return order

    return slow


async def suicidal_worker(say: Say, *, site: dict[str, Any], lease: str, after: float) -> None:
    """A worker that is killed in the middle of whatever it does."""
    loop = asyncio.get_running_loop()
    loop.call_later(after, os.kill, os.getpid(), signal.SIGKILL)
    await real_worker(say, site=site, lease=lease, seconds=60)


async def steady_client(say: Say, *, site: dict[str, Any], who: int, seconds: float) -> None:
    """Ask for things, some of them twice, until the time is over."""
    async with Shop(Site(**site)) as shop:
        slow = slow_tasks(shop, 0.0)
        end, n = asyncio.get_running_loop().time() + seconds, 0
        while asyncio.get_running_loop().time() < end:
            n += 1
            await shop.app.enqueue(slow, f"{who}-{n}", task_id=f"soak-{who}-{n}")
            await shop.app.enqueue(slow, f"all-{n}", task_id=f"soak-all-{n}")
            if n % 5 == 0:
                await shop.app.enqueue(shop.in_turn, f"c-{n % 3}", f"{who}-{n}", task_id=f"turn-{who}-{n}")
                await shop.app.enqueue(shop.squeezed, f"{who}-{n}", task_id=f"narrow-{who}-{n}", delay="50ms")
            await asyncio.sleep(0.02)
        say(n)
