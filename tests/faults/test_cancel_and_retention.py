"""Faults 26 and 27: a cancellation meets every transition, and the cleaner touches only what is over."""

from __future__ import annotations

import asyncio

import pytest

import semel
from semel.contract.lifecycle import Status
from semel.engines.journal import control, leases
from semel.engines.journal.claims import release
from semel.engines.journal.settle import Ending, put_off, settle
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import World, eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("moment", ["pending", "delayed", "running", "put_off", "released", "lost", "completed"])
async def test_a_cancellation_at_any_moment_has_one_consistent_end(site: Site, moment: str) -> None:
    """fault 26"""
    async with Shop(site) as shop:
        delay = "1h" if moment == "delayed" else None
        handle = await shop.app.enqueue(shop.charge, "o-1", task_id="k-1", delay=delay)

        async def cancel() -> Status:
            return await handle.cancel()

        if moment in ("pending", "delayed"):
            assert await cancel() is Status.CANCELLED
        else:
            worker, (one,) = await shop.hold()
            again = [Ending(one, Status.FAILED, error=b'{"type":"E","message":"m"}', retry_in=1.0)]
            done = [Ending(one, Status.COMPLETED, b'"o-1"')]
            if moment == "completed":
                await shop.store.run(settle, worker, done)
                assert await cancel() is Status.COMPLETED
            else:
                assert await cancel() is Status.RUNNING
            if moment == "running":
                assert await shop.store.run(settle, worker, done) == set()
            elif moment == "put_off":
                assert await shop.store.run(put_off, worker, again) == set()
            elif moment == "released":
                await shop.store.run(release, worker, [one.fence])
            elif moment == "lost":
                await site.advance(3600)
                await shop.store.run(leases.recover)
        await site.advance(7200)
        await shop.run_all()
        expected = Status.COMPLETED if moment in ("running", "completed") else Status.CANCELLED
        assert await handle.status() is expected
        assert site.ledger.effects() == []
        assert await cancel() is expected
        assert await site.sql("select * from semel_watch where what = 'changed'") == []


async def test_cancelling_and_completing_at_the_same_time_ends_once(site: Site) -> None:
    """fault 26: on two connections, many times; whoever is first, it has ended and nothing is left."""
    async with Shop(site) as shop, Shop(site) as other:
        for n in range(25):
            handle = await shop.app.enqueue(shop.charge, f"o-{n}", task_id=f"k-{n}")
            worker, (one,) = await shop.hold()
            ending = [Ending(one, Status.COMPLETED, b'"x"')]
            status, refused = await asyncio.gather(
                other.store.run(control.cancel, "default", handle.id), shop.store.run(settle, worker, ending)
            )
            assert refused == set()
            assert status in (Status.RUNNING, Status.COMPLETED)
            assert await handle.status() is Status.COMPLETED
        for n in range(25):
            handle = await shop.app.enqueue(shop.charge, f"p-{n}", task_id=f"l-{n}")
            worker = await shop.worker_id()
            status, (_, claims) = await asyncio.gather(
                other.store.run(control.cancel, "default", handle.id), shop.hold(worker=worker)
            )
            assert (status is Status.RUNNING) == bool(claims)
            assert await handle.status() is (Status.RUNNING if claims else Status.CANCELLED)
            await shop.store.run(leases.retire, worker, "test")
            assert await handle.status() is Status.CANCELLED


async def test_the_cleaner_leaves_what_is_alive_and_keys_inside_their_window(world: World) -> None:
    """fault 27"""
    app = world.app()
    gate = asyncio.Event()

    @app.task(retention="1s", dedup_window="0")
    async def hold() -> None:
        await gate.wait()

    @app.task(retention="1s", dedup_window="1h")
    async def remembered() -> str:
        return "x"

    @app.task(retention="1s", dedup_window="0", retry=semel.Retry(max_attempts=2, initial="1h"))
    async def waiting() -> None:
        raise ValueError

    async with world.worker(app, lease="1h") as worker:
        running = await app.enqueue(hold, task_id="running")
        delayed = await app.enqueue(hold, task_id="delayed", delay="30d")
        again = await app.enqueue(waiting, task_id="again")
        done = await app.enqueue(remembered, task_id="done")
        assert await done.result(timeout="60s") == "x"

        async def settled_down() -> bool:
            tried = await again.describe()
            return (tried.attempt, tried.status) == (1, "pending") and await running.status() is Status.RUNNING

        await eventually(settled_down)
        due = await app.enqueue(remembered, task_id="due", delay="9m")
        await world.advance("10m")
        assert await due.result(timeout="60s") == "x"  # so everything that is due by now has been woken
        await app.clean()
        assert [await h.status() for h in (running, delayed, again)] == ["running", "pending", "pending"]
        assert (await app.enqueue(remembered, task_id="done")).duplicate
        await world.advance("1d")
        worker.heart.due_in(0)
        await app.clean()
        assert [await h.status() for h in (running, delayed)] == ["running", "pending"]
        assert not (await app.enqueue(remembered, task_id="done")).duplicate
        gate.set()
