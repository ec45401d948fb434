"""The tasks of a worker that fell silent run elsewhere; those of one that beats do not."""

import asyncio
import math
from datetime import timedelta

import pytest

import semel
from tests.world import World, eventually


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_they_run_again_after_the_lease(world: World) -> None:
    one, two, runs = world.app(), world.app(), []
    for app in (one, two):

        @app.task
        async def work(n: int) -> int:
            runs.append(n)
            if runs.count(n) == 1:
                await asyncio.Event().wait()
            return semel.current().attempt

    handles = [await one.enqueue(work, n, task_id=f"k{n}") for n in range(5)]
    async with world.worker(one, grace=0, lease="10m") as dead:
        await eventually(lambda: len(runs) == 5)
        await world.cut_off(dead)
        async with world.worker(two, lease="10m"):
            await world.advance("9m")
            await asyncio.sleep(0.02)
            assert len(runs) == 5
            await world.advance("2m")
            assert [await handle.result(timeout="60s") for handle in handles] == [2] * 5
    assert sorted(runs) == sorted([*range(5), *range(5)])


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_they_run_again_although_the_heart_was_busy_when_the_lease_ran_out(world: World) -> None:
    one, two, runs = world.app(), world.app(), []
    for app in (one, two):

        @app.task
        async def work() -> int:
            runs.append(1)
            if len(runs) == 1:
                await asyncio.Event().wait()
            return semel.current().attempt

    busy, done = asyncio.Event(), asyncio.Event()

    async def refresh(layout: str) -> None:
        worker.heart._layout = layout
        busy.set()
        await done.wait()

    handle = await one.enqueue(work)
    async with world.worker(one, grace=0, lease="10m") as dead:
        await eventually(lambda: runs)
        await world.cut_off(dead)
        async with world.worker(two, lease="10m") as worker:
            worker.heart._layout, worker.heart._refresh = "", refresh  # type: ignore[method-assign]
            while not busy.is_set():
                worker.heart.due_in(0)
                await asyncio.sleep(0.01)
            beaten = worker.heart._last
            await world.advance("11m")
            await eventually(lambda: worker.heart._last > beaten and worker.heart._wanted == math.inf)
            assert len(runs) == 1
            done.set()
            assert await handle.result(timeout="60s") == 2


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_a_task_longer_than_many_leases_is_left_alone_while_its_worker_beats(world: World) -> None:
    one, two, runs, goes_on = world.app(), world.app(), [], asyncio.Event()
    for app in (one, two):

        @app.task
        async def work() -> str:
            runs.append(1)
            await goes_on.wait()
            return "done"

    handle = await one.enqueue(work)
    async with world.worker(one, lease="10m"), world.worker(two, lease="10m"):
        await eventually(lambda: runs)
        for _ in range(4):
            await world.advance("9m")
            await eventually(lambda: both_have_beaten(world, one))
        goes_on.set()
        assert await handle.result(timeout="60s") == "done"
    assert runs == [1]


async def both_have_beaten(world: World, app: semel.App) -> bool:
    """Since the clock was moved: a beat that was under way just then does not count."""
    return [one.expires_at - world.now() > timedelta(minutes=9) for one in await app.workers()] == [True, True]


async def test_a_worker_shows_its_lease(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> None: ...

    async with world.worker(app, queues=["a", "b"]) as worker:
        (state,) = await app.workers()
        assert (state.id, state.name, state.queues) == (worker.id, worker.name, "a,b")
        assert state.expires_at > world.now()
        assert worker.healthy
    assert await app.workers() == []
    assert not worker.healthy


@pytest.mark.journal("moves the clock past a lease; for a cluster see tests/faults/temporal")
async def test_a_cancelled_task_of_a_dead_worker_is_not_run_again(world: World) -> None:
    one, two, runs = world.app(), world.app(), []
    for app in (one, two):

        @app.task
        async def work() -> None:
            runs.append(1)
            await asyncio.Event().wait()

    handle = await one.enqueue(work)
    async with world.worker(one, grace=0) as dead:
        await eventually(lambda: runs)
        await world.cut_off(dead)
        dead.hub.on_cancel.remove(dead.heart.cancel_came)
        assert await handle.cancel() == "running"
        dead.hub.on_cancel.append(dead.heart.cancel_came)
        async with world.worker(two):
            await world.advance("31s")
            await eventually(lambda: is_cancelled(handle))
    assert runs == [1]


async def is_cancelled(handle: semel.Handle[None]) -> bool:
    return await handle.status() == "cancelled"
