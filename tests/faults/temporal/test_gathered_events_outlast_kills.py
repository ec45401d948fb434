"""Gathered and limited events on Temporal: whoever publishes or closes a window is killed, and so is the server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.contract.events import OutcomeState
from semel.testing.temporal_server import temporal_server
from tests.faults.temporal.place import ROOT, Place, prepare, retry_unavailable
from tests.faults.temporal.test_events_outlast_outages import records
from tests.world import eventually

OUTAGE = 15.0
EVENTS = 40
MURDER = """
import asyncio, os, signal, sys
import semel
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.schedules import ClusterRuns

def die():
    os.kill(os.getpid(), signal.SIGKILL)

start, cancel = Cluster.start, ClusterRuns.cancel

async def die_before_any(self, *args, **options):
    die()

async def die_after_the_first(self, *args, **options):
    await start(self, *args, **options)
    die()

async def die_after_cancelling(self, *args, **options):
    await cancel(self, *args, **options)
    die()

match sys.argv[1]:
    case "before any start":
        ClusterRuns._start_runs = die_before_any
    case "started and not noted":
        Cluster.start = die_after_the_first
    case "before cancelling":
        ClusterRuns.cancel = die_before_any
    case "cancelled and not noted":
        ClusterRuns.cancel = die_after_cancelling

async def main():
    async with semel.App(config=None) as app:
        if sys.argv[2] == "publish":
            await app.publish(semel.EventEnvelope(event_id=sys.argv[3], source="/shop", type="invoice.paid", data={}))
        events = await app.engine.events()
        while True:
            await events.tick()
            await asyncio.sleep(0.05)

asyncio.run(main())
"""


def paid(id: str, type: str = "invoice.paid") -> semel.EventEnvelope:
    return semel.EventEnvelope(event_id=id, source="/shop", type=type, data={})


class Shop:
    """Activities that gather or limit invoices that were paid, and which events their runs had."""

    def __init__(self, place: Place, **activities: dict[str, Any]) -> None:
        self.app = app = semel.App(place.url, config=None, records=place.records)
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        self.holds = asyncio.Event()
        self.holds.set()

        @app.task(retry=10)
        async def note(events: list[semel.EventEnvelope], run: semel.Run) -> None:
            self.seen.append((run.key, tuple(event.event_id for event in events)))
            await self.holds.wait()

        for id, options in activities.items():
            app.on_event("invoice.paid", id=id, **options)(note)

    def had(self, activity: str) -> dict[str, set[str]]:
        """The runs of an activity, by their keys; one that ran again after a kill counts once."""
        runs: dict[str, set[str]] = {}
        for key, events in self.seen:
            if key.startswith(f"activity-{activity}:"):
                assert runs.setdefault(key, set(events)) == set(events), "every attempt has the same events"
        return runs


def die(place: Place, when: str, *what: str) -> None:
    """Have a process publish, or close what is due, that is killed in the middle of it."""
    env = os.environ | place.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MURDER, when, *what]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]


async def unstarted(place: Place) -> int:
    ((count,),) = await records(place, "select count(*) from semel_run where request is not null")
    return int(count)


async def outcomes(place: Place) -> dict[str, tuple[str, str | None]]:
    rows = await records(place, "select event, state, run from semel_event_outcome")
    return {event: (state, run) for event, state, run in rows}


OPTIONS: dict[str, dict[str, Any]] = {
    "batch": {"batch": {"size": 2, "wait": "1h"}},
    "throttle": {"throttle": "100/min"},
    "singleton": {"singleton": "skip"},
    "rate_limit": {"rate_limit": "100/min"},
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before any start", "started and not noted"])
@pytest.mark.parametrize("option", list(OPTIONS))
async def test_a_publisher_killed_between_event_and_start_leaves_it_to_the_next(
    place: Place, option: str, when: str
) -> None:
    shop = Shop(place, desk=OPTIONS[option])
    events = ("e1", "e2") if option == "batch" else ("e2",)
    async with shop.app as app:
        await app.apply()
        if option == "batch":
            assert (await app.publish(paid("e1"))).outcomes[0].state is OutcomeState.GATHERED
        await asyncio.to_thread(die, place, when, "publish", "e2")
        ((key,),) = await records(place, "select key from semel_run")
        assert await outcomes(place) == dict.fromkeys(events, ("started", key))
        assert await unstarted(place) == 1, "it died where it was told to"
        async with app.worker():
            await eventually(lambda: shop.seen)
            again = await app.publish(paid("e2"))
            assert (again.duplicate, [run.key for run in again.runs]) == (True, [key])
            await again.runs[0].result("60s")
    assert shop.seen == [(key, events)]
    assert await unstarted(place) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before any start", "started and not noted"])
async def test_a_router_killed_while_it_closes_a_window_leaves_its_run_to_the_next(place: Place, when: str) -> None:
    shop = Shop(place, calm={"debounce": "500ms"}, pack={"batch": {"size": 10, "wait": "500ms"}})
    async with shop.app as app:
        await app.apply()
        await app.publish_many([paid("e1"), paid("e2")])
        await asyncio.to_thread(die, place, when, "route")
        assert await unstarted(place) >= 1, "it died where it was told to"
        async with app.worker():
            await eventually(lambda: len(shop.seen) == 2)
            for key, _ in shop.seen:
                handle: Any = await app.find(key)
                await handle.result("60s")
            late = await app.publish(paid("e1"))
            assert (late.duplicate, len(late.runs)) == (True, 2)
    for activity in ("calm", "pack"):
        assert list(shop.had(activity).values()) == [{"e1", "e2"}]
    assert len(shop.seen) == 2
    assert await unstarted(place) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before cancelling", "cancelled and not noted"])
async def test_a_router_killed_while_it_cancels_leaves_that_to_the_next(place: Place, when: str) -> None:
    shop = Shop(place, desk={"cancel_on": "invoice.void"})
    shop.holds.clear()
    async with shop.app as app:
        await app.apply()
        (run,) = (await app.publish(paid("e1"))).runs
        await app.publish(paid("void", "invoice.void"))
        await asyncio.to_thread(die, place, when, "route")
        assert await records(place, "select count(*) from semel_event_flow where kind = 'cancel'") == [(1,)]
        async with app.worker():
            with pytest.raises(semel.ExecutionCancelled):
                await run.result("60s")

            async def noted() -> bool:
                return await records(place, "select count(*) from semel_event_flow where kind = 'cancel'") == [(0,)]

            await eventually(noted)
            newer = await app.publish(paid("e2"))
            shop.holds.set()
            await newer.runs[0].result("60s")
    assert list(shop.had("desk").values())[-1] == {"e2"}
    assert {id: state for id, (state, _) in (await outcomes(place)).items()} == {
        "e1": "started", "void": "cancels", "e2": "started"
    }  # fmt: skip


@pytest.mark.proof
@pytest.mark.timeout(500)
async def test_windows_that_are_open_while_the_server_is_away_close_once(tmp_path: Path) -> None:
    """Each event is delivered twice, before, during and after the outage; each activity has it in one run."""
    activities: dict[str, dict[str, Any]] = {
        "calm": {"debounce": {"wait": "700ms", "max_wait": "3s"}},
        "pack": {"batch": {"size": 4, "wait": "2s"}},
        "slow": {"throttle": "30/sec"},
    }
    with temporal_server(tmp_path / "server") as server:
        place = Place(server.url("shop"), f"sqlite:///{tmp_path}/records.db", str(tmp_path))
        await prepare(place)
        shop = Shop(place, **activities)
        async with shop.app as app:
            await app.apply()
            async with app.worker():
                publishing = asyncio.create_task(publish_all(app))
                await eventually(lambda: len(shop.seen) >= 4)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(OUTAGE)
                await asyncio.to_thread(server.restart)
                await asyncio.wait_for(publishing, 200)
                wanted = {f"evt-{number}" for number in range(EVENTS)}
                for activity in activities:
                    await eventually(lambda one=activity: set().union(*shop.had(one).values()) == wanted, within=100)
            assert await unstarted(place) == 0
            for activity in activities:
                handed = [id for events in shop.had(activity).values() for id in events]
                assert sorted(handed) == sorted(wanted), f"{activity}: each event is in one run"
            rows = await records(place, "select state, count(*) from semel_event_outcome group by state")
            assert rows == [("started", 3 * EVENTS)]


async def publish_all(app: semel.App) -> None:
    """Publish each event twice, two a second, over the outage."""
    for number in range(EVENTS):
        for _ in range(2):
            await retry_unavailable(lambda id=f"evt-{number}": app.publish(paid(id)), 200)  # type: ignore[misc]
        await asyncio.sleep(0.5)
