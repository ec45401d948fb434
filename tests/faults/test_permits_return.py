"""Fault 6: permits and keys that a dead worker held come back with its tasks."""

from __future__ import annotations

from tests.faults.operations import claim_everything_guarded, guarded_waiting
from tests.faults.shop import Shop
from tests.faults.site import Site


async def test_limits_let_work_through_again_after_the_holder_died(site: Site) -> None:
    """fault 6"""
    async with Shop(site) as shop:
        memo = await guarded_waiting(shop)
        assert await claim_everything_guarded(shop, memo) == 5  # two of two, two of two asked for, one of the key
        other = {"worker": await shop.worker_id()}
        assert await claim_everything_guarded(shop, other) == 1  # only the rate limit lets more through
        await site.advance(3600)
        await shop.run_all()
        assert (await site.sql("select count(*) from semel_execution where status = 'completed'")) == [(9,)]
