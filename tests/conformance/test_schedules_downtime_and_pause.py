"""Every misfire policy with every overlap policy: slots are missed in a downtime, or fire in a pause, during a run."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import product
from typing import Any

import pytest

import semel
from semel.contract.slot_policy import Misfire, Overlap
from tests.conformance.test_schedules import HOUR, first_slot
from tests.world import World, eventually

PAIRS = list(product(Misfire, Overlap))
MISSED = {
    Misfire.SKIP: {"downtime": "late", "pause": "paused"},
    Misfire.CATCHUP: dict.fromkeys(("downtime", "pause"), "over the catch-up limit"),
    Misfire.COMPRESS: dict.fromkeys(("downtime", "pause"), "compressed"),
}
"""Why slots of 1 to 5 did not run."""


def expected(misfire: Misfire, overlap: Overlap, what: str) -> dict[str, Any]:
    """What becomes of slot 0, whose run waits for a worker; of 1 to 5, which are missed; and of 6, which is on time."""
    reason = MISSED[misfire][what]
    if misfire is Misfire.CATCHUP:  # the newest three, and 6 behind them, whatever overlap says
        return {"ran": [0, 3, 4, 5, 6], "skipped": [(reason, 1, 2)], "windows": [(2, 3), (3, 4), (4, 5), (5, 6)]}
    if misfire is Misfire.COMPRESS:  # one run for all of them, and 6 behind it
        return {"ran": [0, 5, 6], "skipped": [(reason, 1, 4)], "windows": [(0, 5), (5, 6)]}
    if overlap is Overlap.SKIP:
        return {"ran": [0], "skipped": [(reason, 1, 5), ("overlap", 6, 6)], "windows": []}
    begun = [6] if overlap in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER) else [0, 6]
    return {"ran": begun, "skipped": [(reason, 1, 5)], "windows": [(5, 6)]}


async def keys_of(app: semel.App, ids: list[str]) -> list[str]:
    """The keys of all runs."""
    return [run.key for id_ in ids for run in await app.schedules.runs(id_)]


async def find(app: semel.App, key: str) -> semel.Handle[Any]:
    """The execution of a run."""
    handle = await app.find(key)
    assert handle is not None
    return handle


@pytest.mark.parametrize("what", ["downtime", "pause"])
async def test_slots_that_were_missed_during_a_run(world: World, what: str) -> None:
    app, begin = world.app(), first_slot(world)
    seen: dict[str, list[semel.Run]] = defaultdict(list)

    @app.task(retry=1)
    async def report(run: semel.Run) -> None:
        seen[run.schedule].append(run)

    ids = [f"{misfire}.{overlap}" for misfire, overlap in PAIRS]
    for id_, (misfire, overlap) in zip(ids, PAIRS, strict=True):
        options: dict[str, Any] = {"misfire": misfire, "overlap": overlap, "max_catchup": 3}
        await app.schedules.put(id_, report, every="1h", start_at=begin, end_at=begin + 7 * HOUR, **options)

    async def look() -> None:
        schedules: Any = await app.engine.schedules()
        await schedules.inner.tick()

    await world.jump("61m")
    await look()
    if what == "pause":
        await asyncio.gather(*(app.schedules.pause(id_) for id_ in ids))
    await world.jump("5h40m")
    if what == "pause":
        await asyncio.gather(*(app.schedules.resume(id_) for id_ in ids))
    await look()
    await world.jump("20m")
    await look()

    async def all_done() -> bool:
        world.look_at_schedules()
        if any(one.waiting for one in await app.schedules.list()):
            return False
        return all([(await one.status()).terminal for one in [await find(app, key) for key in await keys_of(app, ids)]])

    async with world.worker(app):
        await eventually(all_done)
    for id_, (misfire, overlap) in zip(ids, PAIRS, strict=True):
        told = await app.schedules.skipped(id_)
        if (misfire, overlap) == (Misfire.SKIP, Overlap.ALLOW_ALL):  # two at once are run in any order
            seen[id_].sort(key=lambda run: run.scheduled_for)
        found = {
            "ran": [round((run.scheduled_for - begin) / HOUR) for run in seen[id_]],
            "skipped": [
                (one.reason.value, round((one.first - begin) / HOUR), round((one.last - begin) / HOUR))
                for one in reversed(told)
            ],
            "windows": [
                (round((run.window.start - begin) / HOUR), round((run.window.end - begin) / HOUR))
                for run in seen[id_]
                if run.window.start is not None and run.scheduled_for > begin
            ],
        }
        assert found == expected(misfire, overlap, what), id_
        status = await (await find(app, f"activity-{id_}:{begin.isoformat()}")).status()
        replaced = 0 not in expected(misfire, overlap, what)["ran"]
        assert status is (semel.Status.CANCELLED if replaced else semel.Status.COMPLETED), id_
