"""Races that only a second connection can see, and a first use that fails."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest

import semel
from semel.engines.journal import leases
from semel.runtime import retries
from tests.faults.operations import guarded_waiting
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import World


async def test_a_worker_that_is_claiming_by_key_cannot_be_buried_in_between(
    postgres_world: World, tmp_path: Path
) -> None:
    """I6: else the claim would belong to a worker that is no more, and nobody would look for it."""
    site = Site("postgres", postgres_world.url, str(tmp_path))
    async with Shop(site) as shop:
        worker = (await guarded_waiting(shop))["worker"]
        await site.advance(3600)
        lane, seq = (await site.sql("select lane, seq from semel_ready where concurrency_key is not null limit 1"))[0]
        connection = await asyncpg.connect(site.url)
        try:
            await connection.execute("begin")
            claimed = await connection.fetch(shop.store._queries["claim_these"], worker, lane, [seq], 4711)
            assert len(claimed) == 1
            await shop.store.run(leases.recover)
            await connection.execute("commit")
        finally:
            await connection.close()
        await shop.store.run(leases.recover)
        assert await site.sql("select seq from semel_ready where owner is not null") == []


@pytest.mark.parametrize("times", [5, 6])
async def test_a_first_use_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The database was away when it was first asked for; the tables are made when it is back."""
    monkeypatch.setattr(retries, "pause", lambda attempt, most=5.0: 0.001)
    left = [times]

    class Away:
        def before(self, statement: str) -> None:
            if left[0]:
                left[0] -= 1
                raise semel.EngineUnavailable("away")

        def after(self, statement: str) -> None: ...

    site = Site("sqlite", f"sqlite:///{tmp_path}/semel.db", str(tmp_path))
    shop = Shop(site)
    shop.app._unconfigured = False
    shop.store.tap = Away()
    with pytest.raises(semel.EngineUnavailable):
        await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
    assert not handle.duplicate
    await shop.app.close()
