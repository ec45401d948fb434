"""Events on Temporal: a publisher that is killed between an event and its starts, a server that is away a minute."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.testing.temporal_server import temporal_server
from tests.faults.temporal.place import ROOT, Place, prepare, retry_unavailable
from tests.world import World, eventually

OUTAGE = 60.0
EVENTS = 60
PUBLISHER = """
import asyncio, os, signal, sys
import semel
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.schedules import ClusterRuns

def die():
    os.kill(os.getpid(), signal.SIGKILL)

start, started = Cluster.start, 0

async def die_before_any(self, **options):
    die()

async def die_after_the_first(self, *args, **options):
    await start(self, *args, **options)
    die()

async def die_before_the_second(self, *args, **options):
    global started
    started += 1
    if started == 2:
        die()
    return await start(self, *args, **options)

match sys.argv[1]:
    case "before any start":
        ClusterRuns._start_runs = die_before_any
    case "started and not noted":
        Cluster.start = die_after_the_first
    case "between two starts":
        Cluster.start = die_before_the_second

async def main():
    async with semel.App(config=None) as app:
        await app.publish(semel.EventEnvelope(event_id="evt_1", source="/shop", type="invoice.paid", data={}))

asyncio.run(main())
"""


def paid(id: str) -> semel.EventEnvelope:
    return semel.EventEnvelope(event_id=id, source="/shop", type="invoice.paid", data={})


class Shop:
    """Two activities that want invoices that were paid, and what ran."""

    def __init__(self, place: Place) -> None:
        self.app = app = semel.App(place.url, config=None, records=place.records)
        self.seen: list[str] = []

        @app.on_event("invoice.paid")
        @app.task(retry=10)
        async def bill(run: semel.Run) -> None:
            self.seen.append(run.key)

        @app.on_event("invoice.*")
        @app.task(retry=10)
        async def count(run: semel.Run) -> None:
            self.seen.append(run.key)


async def records(place: Place, text: str) -> list[tuple[Any, ...]]:
    return await World("sqlite", place.records).sql(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "unstarted"), [("before any start", 2), ("started and not noted", 2), ("between two starts", 1)]
)
async def test_a_publisher_killed_between_event_and_starts_leaves_them_to_the_next(
    place: Place, when: str, unstarted: int
) -> None:
    shop = Shop(place)
    async with shop.app as app:
        await app.apply()
        await asyncio.to_thread(publish_and_die, place, when)
        assert await records(place, "select id, state from semel_event") == [("evt_1", "routed")]
        waiting = await records(place, "select key from semel_run where request is not null")
        assert len(waiting) == unstarted, "it died where it was told to"
        async with app.worker():
            await eventually(lambda: len(shop.seen) >= 2)
            again = await app.publish(paid("evt_1"))
            assert (again.duplicate, len(again.runs)) == (True, 2)
            for run in again.runs:
                await run.result("60s")
        assert sorted(shop.seen) == ["activity-bill:evt_1", "activity-count:evt_1"]
        assert await records(place, "select count(*) from semel_run where request is not null") == [(0,)]

        async def nothing_else_is_listed() -> bool:
            return {one.id for one in await app.list()} == {run.id for run in again.runs}

        await eventually(nothing_else_is_listed)


def publish_and_die(place: Place, when: str) -> None:
    env = os.environ | place.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PUBLISHER, when]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


@pytest.mark.proof
@pytest.mark.timeout(400)
async def test_events_published_while_the_server_is_away_for_a_minute_run_once(tmp_path: Path) -> None:
    """Before, during and after the outage, each event delivered twice; each activity runs once for each."""
    with temporal_server(tmp_path / "server") as server:
        place = Place(server.url("shop"), f"sqlite:///{tmp_path}/records.db", str(tmp_path))
        await prepare(place)
        shop = Shop(place)
        async with shop.app as app:
            await app.apply()
            async with app.worker():
                publishing = asyncio.create_task(publish_all(app))
                await eventually(lambda: len(shop.seen) >= 6)
                await asyncio.to_thread(server.kill)
                ran = len(shop.seen)
                await asyncio.sleep(OUTAGE)
                assert len(shop.seen) <= ran + 10, "nobody could start anything"
                await asyncio.to_thread(server.restart)
                firsts = await asyncio.wait_for(publishing, 200)
                wanted = {f"activity-{one}:evt-{n}" for one in ("bill", "count") for n in range(EVENTS)}
                await eventually(lambda: set(shop.seen) == wanted, within=100)
            assert firsts <= EVENTS
            assert await records(place, "select count(*) from semel_event where state = 'routed'") == [(EVENTS,)]
            assert await records(place, "select count(*) from semel_run") == [(2 * EVENTS,)]
            assert await records(place, "select count(*) from semel_run where request is not null") == [(0,)]
    again = [key for key, times in Counter(shop.seen).items() if times > 1]
    assert len(again) <= 12, "only what was under way when the server died may have run again"


async def publish_all(app: semel.App) -> int:
    """Publish each event twice, some a second, over the outage; how many were told to be new."""
    firsts = 0
    for number in range(EVENTS):
        for _ in range(2):
            answer = await retry_unavailable(lambda id=f"evt-{number}": app.publish(paid(id)), 200)  # type: ignore[misc]
            firsts += not answer.duplicate
        await asyncio.sleep(1)
    return firsts
