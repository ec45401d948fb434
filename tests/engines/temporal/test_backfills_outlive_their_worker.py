"""A step of a backfill is committed, and then its runs are started: whoever dies between the two, each runs once."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

import semel
from semel.contract.backfill import BackfillInfo
from tests.engines.temporal.test_schedules_outlive_their_worker import Died, Shop, die_at
from tests.temporal_world import TemporalWorld
from tests.world import eventually

HOUR = timedelta(hours=1)


async def put(shop: Shop, **options: Any) -> None:
    """An hourly schedule with slots in the past."""
    begin = shop.begin - 20 * HOUR
    await shop.app.schedules.put("a", shop.report, every="1h", start_at=begin, **options)


async def ask(app: semel.App, begin: datetime, **options: Any) -> BackfillInfo:
    """A backfill of two slots of the past, both at once."""
    return await app.schedules.backfill("a", begin, begin + 2 * HOUR, max_active=2, **options)


async def completed(world: TemporalWorld, shop: Shop, id: str, count: int) -> None:
    async def enough() -> bool:
        await world.advance("1s")
        return (await shop.app.schedules.backfills.get(id)).completed == count

    await eventually(enough)


@pytest.mark.parametrize("at", range(4))
async def test_runs_of_a_backfill_are_started_once_also_those_that_run_again(
    cluster: TemporalWorld, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[semel.Run] = []
    shop, other = Shop(cluster, seen), Shop(cluster, seen)
    begin = shop.begin - 5 * HOUR
    await put(shop)
    async with cluster.worker(other.app):
        await completed(cluster, other, (await ask(other.app, begin)).id, 2)
    again = await ask(shop.app, begin, rerun="all")
    die_at(await shop.runs_on_the_cluster(), at, monkeypatch)
    with pytest.raises(Died):
        await (await shop.engine()).backfills.carry_on()
    if at == 0:
        await cluster.jump("2m")
        assert [str(one.kind) for one in await other.app.schedules.reconcile()] == ["unstarted"] * 2
        assert [one.fixed for one in await other.app.schedules.reconcile(fix=True)] == [True] * 2
    async with cluster.worker(other.app):
        await completed(cluster, other, again.id, 2)
    assert Counter(run.generation for run in seen) == {0: 2, 1: 2}
    runs = await other.app.schedules.runs("a")
    assert len({run.execution for run in runs}) == 4, "each is an execution of its own"


async def test_a_run_of_a_backfill_is_not_taken_for_that_of_its_slot(cluster: TemporalWorld) -> None:
    """Both have one id on the cluster; the schedule's own run has ended, whatever the other one does."""
    seen: list[semel.Run] = []
    shop = Shop(cluster, seen)
    await put(shop)
    async with cluster.worker(shop.app):
        await cluster.advance("61m")
        await eventually(lambda: len(seen) == 1)
        (own,) = await shop.app.schedules.runs("a")
        handle = await shop.app.get(own.execution)
        await handle.result("60s")
        shop.holds.clear()
        slot = own.scheduled_for
        await shop.app.schedules.backfill("a", slot, slot + timedelta(seconds=1), rerun="all")
        await eventually(lambda: len(seen) == 2)
        await cluster.advance("1h")
        await eventually(lambda: len(seen) == 3)
        shop.holds.set()
    assert [(run.scheduled_for - slot, run.generation) for run in seen] == [(0 * HOUR, 0), (0 * HOUR, 1), (HOUR, 0)]
    assert await shop.app.schedules.skipped("a") == [], "it met no active run"
