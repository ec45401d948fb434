"""Events that several processes deliver at once to activities that gather and limit them: each is in one run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.faults.event_invariants import event_faults
from tests.faults.event_shop import EventShop, paid
from tests.faults.site import Site

PROCESSES = 4
ROOT = Path(__file__).parents[2]
OPTIONS: dict[str, dict[str, Any]] = {
    "calm": {"debounce": {"wait": "2s", "max_wait": "10s", "key": "data.cents"}},
    "pack": {"batch": {"size": 7, "wait": "5s"}},
    "slow": {"batch": {"size": 50, "wait": "5s", "key": "data.cents"}, "throttle": "20/sec"},
}
DELIVERY = """
import asyncio, json, random, sys
from tests.faults.event_shop import EventShop, paid
from tests.faults.site import Site

async def main():
    site, times, seed, count = Site(**json.loads(sys.argv[1])), *map(int, sys.argv[2:5])
    numbers = [*range(count)] * times
    random.Random(seed).shuffle(numbers)
    first = 0
    async with EventShop(site) as shop:
        for at in range(0, len(numbers), 50):
            part = [paid(f"evt-{number}", number % 5) for number in numbers[at : at + 50]]
            single = await asyncio.gather(*(shop.app.publish(one) for one in part[:20]))
            many = await shop.app.publish_many(part[20:])
            first += sum(not one.duplicate for one in [*single, *many])
            if at % 250 == 0:
                await (await shop.events()).tick()
    print(first)

asyncio.run(main())
"""


async def subscribe(shop: EventShop) -> None:
    """Activities that gather and limit invoices that were paid."""
    for id, options in OPTIONS.items():
        shop.app.on_event("invoice.paid", id=id, **options)(shop.index)
    await shop.app.apply()


def deliver_from_processes(site: Site, events: int, times: int) -> list[int]:
    """For each process, how many events it was told to be new."""
    command = [sys.executable, "-c", DELIVERY, json.dumps(site.plain()), str(times)]
    processes = [
        subprocess.Popen([*command, str(seed), str(events)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for seed in range(PROCESSES)
    ]
    firsts = []
    for process in processes:
        out, err = process.communicate(timeout=800)
        assert process.returncode == 0, err.decode()[-2000:]
        firsts.append(int(out))
    return firsts


async def deliver(site: Site, events: int, times: int) -> None:
    async with EventShop(site) as shop:
        await subscribe(shop)
    firsts = await asyncio.to_thread(deliver_from_processes, site, events, times)
    assert sum(firsts) == events, f"each event was new once, over all processes: {firsts}"
    async with EventShop(site) as shop:
        await subscribe(shop)
        await shop.app.publish(paid("last"))
        await shop.conclude()
    ids = [*(f"evt-{number}" for number in range(events)), "last"]
    assert await event_faults(site.sql, {id: list(OPTIONS) for id in ids}) == []
    had: Counter[tuple[str, str]] = Counter()
    rows = await site.sql(
        "select r.schedule, x.input, x.status from semel_run r join semel_execution x on x.id = r.execution"
    )
    for activity, given, status in rows:
        assert status == "completed"
        had.update((activity, one["event_id"]) for one in msgspec.json.decode(bytes(given))["events"])
    assert had == Counter({(activity, id): 1 for activity in OPTIONS for id in ids}), "each is in one run of each"


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_gathered_events_that_four_processes_deliver_are_in_one_run(site: Site) -> None:
    await deliver(site, 100, 1)


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_a_thousand_gathered_events_that_are_delivered_again_and_again_are_in_one_run(site: Site) -> None:
    await deliver(site, 1000, 3)
