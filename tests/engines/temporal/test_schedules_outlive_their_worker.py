"""A look at schedules is committed, and then its runs are started: whoever dies between the two, each runs once."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.engine.start_request import StartRequest
from semel.engines.journal.schedules import StoredSchedules
from semel.engines.temporal.schedules import ClusterRuns
from tests.temporal_world import TemporalWorld
from tests.world import eventually

IDS = ("a", "b", "c")


class Died(BaseException):
    """Stands for the end of a process."""


class Shop:
    """One process with three hourly schedules."""

    def __init__(self, world: TemporalWorld, seen: list[semel.Run]) -> None:
        self.app = app = world.app()
        self.begin = world.now().replace(microsecond=0) + timedelta(hours=1)
        self.holds = asyncio.Event()
        self.holds.set()

        @app.task(retry=1, name="report")
        async def report(run: semel.Run) -> None:
            seen.append(run)
            await self.holds.wait()

        @app.workflow(name="digest")
        async def digest(ctx: semel.Context, run: semel.Run) -> None:
            await ctx.wait_signal("go")

        self.report, self.digest = report, digest

    async def put(self) -> None:
        for id in IDS:
            await self.app.schedules.put(id, self.report, every="1h", start_at=self.begin)

    async def engine(self) -> StoredSchedules:
        bounded: Any = await self.app.engine.schedules()
        schedules = bounded.inner
        assert isinstance(schedules, StoredSchedules)
        return schedules

    async def runs_on_the_cluster(self) -> ClusterRuns:
        where = (await self.engine())._where
        assert isinstance(where, ClusterRuns)
        return where


def die_at(where: ClusterRuns, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends at a point: even ones are before the start of a run, odd ones after it, before it is noted."""
    real, calls = where._cluster.start, Counter[str]()

    async def start(request: StartRequest) -> Any:
        if calls["points"] >= at:
            raise Died
        calls["points"] += 1
        admission = await real(request)
        if calls["points"] >= at:
            raise Died
        calls["points"] += 1
        return admission

    monkeypatch.setattr(where._cluster, "start", start)


@pytest.mark.parametrize("at", range(6))
async def test_runs_that_were_decided_are_started_once(
    cluster: TemporalWorld, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[semel.Run] = []
    shop, heir = Shop(cluster, seen), Shop(cluster, seen)
    await shop.put()
    await (await shop.engine()).tick()
    await cluster.jump("1h")
    die_at(await shop.runs_on_the_cluster(), at, monkeypatch)
    with pytest.raises(Died):
        await (await shop.engine()).tick()
    async with cluster.worker(heir.app):
        await eventually(lambda: len(seen) >= len(IDS))
        await cluster.advance("1h")
        await eventually(lambda: len(seen) >= 2 * len(IDS))
    assert Counter(run.key for run in seen) == Counter(
        f"activity-{id}:{(shop.begin + timedelta(hours=hour)).isoformat()}" for id in IDS for hour in (0, 1)
    )


async def test_a_run_that_cannot_be_started_does_not_hold_up_the_others(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[semel.Run] = []
    shop = Shop(cluster, seen)
    await shop.put()
    where = await shop.runs_on_the_cluster()
    real = where._cluster.start

    async def start(request: StartRequest) -> Any:
        if request.key is not None and request.key.startswith("activity-a:"):
            raise semel.ConfigError("not on this cluster")
        return await real(request)

    monkeypatch.setattr(where._cluster, "start", start)
    async with cluster.worker(shop.app):
        for hour in (1, 2):
            await cluster.advance("1h")
            await eventually(lambda: len(seen) >= 2 * hour)  # noqa: B023
            for run in seen:  # a slot while a run goes on would be skipped
                handle = await shop.app.find(run.key)
                assert handle is not None
                await handle.result("60s")
    assert {run.schedule for run in seen} == {"b", "c"}
    assert len(seen) == 4


async def test_a_run_is_terminated_although_who_decided_it_died(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, heir = Shop(cluster, []), Shop(cluster, [])
    await shop.app.schedules.put("d", shop.digest, every="1h", start_at=shop.begin, overlap="terminate_other")
    await cluster.jump("1h")
    schedules = await shop.engine()
    await schedules.tick()
    await cluster.jump("1h")

    async def die(starts: Any) -> None:
        raise Died

    monkeypatch.setattr(await shop.runs_on_the_cluster(), "follow_up", die)
    with pytest.raises(Died):
        await schedules.tick()
    async with cluster.worker(heir.app):
        first = await shop.app.find(f"activity-d:{shop.begin.isoformat()}")
        assert first is not None
        await cluster.advance("2s")
        with pytest.raises(semel.ExecutionCancelled):
            await first.result("30s")
        second = await shop.app.find(f"activity-d:{(shop.begin + timedelta(hours=1)).isoformat()}")
        assert second is not None
        assert (await second.describe()).status.live
