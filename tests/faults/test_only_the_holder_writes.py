"""Faults 1, 2, 3 and 22: a claim is kept by heartbeats, lost without them, and nobody else can end the work."""

from __future__ import annotations

import types

import pytest

from semel.contract.lifecycle import Status
from semel.engines.journal import heartbeat, leases
from semel.engines.journal.script import ConnectionRole, Script, SqlBatch, procedure
from semel.engines.journal.settle import Ending, settle
from tests.faults.flow_shop import FlowShop
from tests.faults.forged import (
    a_claim_of_the_past_writes_nothing,
    a_letter_of_the_past_is_not_taken_out,
    a_turn_of_the_past_writes_nothing,
)
from tests.faults.shop import LEASE, Shop
from tests.faults.site import Site
from tests.world import World, eventually


@procedure(ConnectionRole.CONTROL)
def end_as_lost(id_: str) -> Script[int]:
    """What a rescuer does who decided on what it read some time ago."""
    return len((yield SqlBatch("end", [(id_, Status.FAILED.value, None, 1)])))


async def test_a_stale_rescuer_cannot_overwrite_a_completed_row(site: Site) -> None:
    """fault 1"""
    async with Shop(site) as shop:
        handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
        worker, claims = await shop.hold()
        assert await shop.store.run(settle, worker, [Ending(claims[0], Status.COMPLETED, b'"o-1"')]) == set()
        await site.advance(3600)
        await shop.store.run(leases.recover)
        assert await shop.store.run(end_as_lost, handle.id) in (0, 1)
        assert await handle.status() is Status.COMPLETED
        assert await handle.result() == "o-1"
        assert await site.sql("select * from semel_watch where what = 'changed'") == []


async def test_heartbeats_at_nine_tenths_of_the_lease_keep_the_claim(site: Site) -> None:
    """fault 2"""
    async with Shop(site) as shop:
        await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
        worker, claims = await shop.hold()
        for _ in range(4):
            await site.advance(0.9 * LEASE / 1e6)
            assert await shop.store.run(leases.recover) == []
            state, _ = await shop.store.run(leases.pulse, worker, LEASE, [], [], [], [])
            assert state is not None
        assert await shop.store.run(settle, worker, [Ending(claims[0], Status.COMPLETED, b'"o-1"')]) == set()


async def test_a_worker_restarted_under_the_same_name_does_not_inherit_claims(site: Site) -> None:
    """fault 3"""
    async with Shop(site) as shop:
        handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
        await shop.hold()
        again = await shop.worker_id("test")
        await site.advance(0.9 * LEASE / 1e6)
        await shop.store.run(leases.pulse, again, LEASE, [], [], [], [])
        await site.advance(0.5 * LEASE / 1e6)
        assert len(await shop.store.run(leases.recover)) == 1
        _, claims = await shop.hold(worker=again)
        assert [(one.execution, one.attempt) for one in claims] == [(handle.id, 2)]


async def test_a_zombie_cannot_settle_what_was_taken_over(site: Site) -> None:
    """I4: neither while it waits again, nor while another runs it, nor after it has ended."""
    async with Shop(site) as shop:
        await shop.app.enqueue(shop.charge, "o-1", task_id="k-1")
        zombie, old = await shop.hold()
        late = [Ending(old[0], Status.FAILED, error=b"{}")]
        await site.advance(3600)
        await shop.store.run(leases.recover)
        assert await shop.store.run(settle, zombie, late) == {old[0].token}
        worker, new = await shop.hold()
        assert new[0].seq > old[0].seq
        assert await shop.store.run(settle, zombie, late) == {old[0].token}
        assert await shop.store.run(settle, worker, [Ending(new[0], Status.COMPLETED, b'"o-1"')]) == set()
        assert await shop.store.run(settle, zombie, late) == {old[0].token}
        assert (await site.sql("select status from semel_execution")) == [("completed",)]


async def test_a_claim_is_known_by_its_token_and_its_execution(site: Site) -> None:
    """fault 37: sequence numbers are used again after a restore."""
    async with Shop(site) as shop:
        await a_claim_of_the_past_writes_nothing(shop)


async def test_a_turn_is_known_by_its_token_its_execution_and_what_it_stands_on(site: Site) -> None:
    """fault 37"""
    async with FlowShop(site) as shop:
        await a_turn_of_the_past_writes_nothing(shop)


async def test_what_a_turn_took_in_is_known_by_when_it_came(site: Site) -> None:
    """fault 37: a signal that came after a restore may have the number of one that was lost."""
    async with FlowShop(site) as shop:
        await a_letter_of_the_past_is_not_taken_out(shop)


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_worker_whose_clock_is_an_hour_off_goes_by_the_clock_of_the_database(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """fault 22"""
    real = heartbeat.time
    wrong = types.SimpleNamespace(monotonic=real.monotonic, time=lambda: real.time() + hours * 3600)
    monkeypatch.setattr(heartbeat, "time", wrong)
    app = postgres_world.app()

    @app.task
    async def soon() -> str:
        return "done"

    async with postgres_world.worker(app, lease="10m") as worker, postgres_world.worker(app, lease="10m") as other:
        ids = {worker.id, other.id}
        handle = await app.enqueue(soon, delay="200ms")
        assert await handle.result(timeout="60s") == "done"
        assert {worker.id, other.id} == ids
        assert worker.healthy
        await eventually(lambda: not worker.running)
