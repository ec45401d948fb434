"""An event is committed, and then its runs are started: whoever dies between the two, each runs once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import semel
from semel.engines.journal.events import StoredEvents
from semel.engines.temporal.schedules import ClusterRuns
from tests.engines.temporal.test_schedules_outlive_their_worker import Died, die_at
from tests.temporal_world import TemporalWorld
from tests.world import eventually

EVENT = semel.EventEnvelope(event_id="evt_abc123", source="/shop", type="invoice.paid", data={"cents": 900})
KEYS = ("activity-bill:evt_abc123", "activity-pack:evt_abc123")


class Shop:
    """One process with two activities."""

    def __init__(self, world: TemporalWorld, seen: list[str]) -> None:
        self.app = app = world.app()

        @app.on_event("invoice.paid")
        @app.task(retry=1, name="bill")
        async def bill(run: semel.Run) -> None:
            seen.append(run.key)

        @app.on_event("invoice.*")
        @app.task(retry=1, name="pack")
        async def pack(run: semel.Run) -> None:
            seen.append(run.key)

    async def runs_on_the_cluster(self) -> ClusterRuns:
        bounded: Any = await self.app.engine.events()
        events = bounded.inner
        assert isinstance(events, StoredEvents)
        assert isinstance(events._where, ClusterRuns)
        return events._where


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("next", ["a worker", "a redelivery"])
async def test_runs_that_were_recorded_are_started_once(
    cluster: TemporalWorld, at: int, next: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    shop, heir = Shop(cluster, seen), Shop(cluster, seen)
    await shop.app.apply()
    die_at(await shop.runs_on_the_cluster(), at, monkeypatch)
    with pytest.raises(Died):
        await shop.app.publish(EVENT)
    if next == "a redelivery":
        again = await heir.app.publish(EVENT)
        assert again.duplicate
        assert sorted(run.id.partition("@")[2] for run in again.runs) == sorted(KEYS), "they have begun"
    async with cluster.worker(heir.app):
        await eventually(lambda: len(seen) >= len(KEYS))
    assert Counter(seen) == Counter(KEYS)


async def test_while_the_cluster_is_away_events_are_accepted_and_start_later(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    shop, heir = Shop(cluster, seen), Shop(cluster, seen)
    await shop.app.apply()

    async def away(request: object) -> None:
        raise semel.EngineUnavailable("the cluster does not answer")

    monkeypatch.setattr((await shop.runs_on_the_cluster())._cluster, "start", away)
    receipt = await shop.app.publish(EVENT)
    assert (receipt.duplicate, sorted(run.key or "" for run in receipt.runs)) == (False, sorted(KEYS))
    async with cluster.worker(heir.app):
        await eventually(lambda: len(seen) >= len(KEYS))
    assert Counter(seen) == Counter(KEYS)


async def test_without_records_events_are_refused(cluster: TemporalWorld) -> None:
    app = cluster.app(records=None)
    with pytest.raises(semel.ConfigError, match="records"):
        await app.publish(EVENT)
    with pytest.raises(semel.ConfigError, match="records"):
        await app.events.list()
