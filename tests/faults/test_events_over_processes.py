"""Many events, each delivered again and again by several processes at once: one run for each matching activity."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.event_invariants import event_faults
from tests.faults.event_shop import EventShop
from tests.faults.site import Site

EVENTS = 1000
PROCESSES = 4
PUBLISHER = """
import asyncio, json, random, sys
from tests.faults.event_shop import EventShop, paid
from tests.faults.site import Site

async def main():
    site, times, seed = Site(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    ids = [f"evt-{number}" for number in range(int(sys.argv[4]))] * times
    random.Random(seed).shuffle(ids)
    first = 0
    async with EventShop(site) as shop:
        for at in range(0, len(ids), 200):
            part = ids[at : at + 200]
            single = await asyncio.gather(*(shop.app.publish(paid(id)) for id in part[:100]))
            many = await shop.app.publish_many([paid(id) for id in part[100:]])
            first += sum(not one.duplicate for one in [*single, *many])
            assert all(len(one.runs) == 2 for one in [*single, *many])
    print(first)

asyncio.run(main())
"""
ROOT = Path(__file__).parents[2]


def publish_from_processes(site: Site, times: int) -> list[int]:
    """For each process, how many events it was told to be new."""
    command = [sys.executable, "-c", PUBLISHER, json.dumps(site.plain()), str(times)]
    processes = [
        subprocess.Popen([*command, str(seed), str(EVENTS)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for seed in range(PROCESSES)
    ]
    firsts = []
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err.decode()[-2000:]
        firsts.append(int(out))
    return firsts


async def deliver(site: Site, times: int) -> None:
    """Deliver each event so many times from each process, all at once."""
    async with EventShop(site) as shop:
        await shop.subscribe(bill=shop.bill, settle=shop.settle)
        shop.app.on_event("order.placed", id="other")(shop.bill)
        await shop.app.apply()
    firsts = publish_from_processes(site, times)
    assert sum(firsts) == EVENTS, f"each event was new once, over all processes: {firsts}"
    expected = {f"evt-{number}": ["bill", "settle"] for number in range(EVENTS)}
    assert await event_faults(site.sql, expected) == []
    assert await site.sql("select count(*) from semel_execution") == [(2 * EVENTS,)]
    counted = (await site.sql("select sum(duplicates) from semel_event"))[0][0]
    assert int(counted) == EVENTS * (times * PROCESSES - 1)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_events_that_four_processes_deliver_run_once(site: Site) -> None:
    await deliver(site, 1)


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_events_that_are_delivered_a_hundred_times_run_once(site: Site) -> None:
    await deliver(site, 25)
