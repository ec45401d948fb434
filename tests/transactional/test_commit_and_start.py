"""A start on the caller's connection is there when that commits, and never was when it does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import semel
from semel.sync_verbs import SyncHandle
from tests.transactional.conftest import Callers
from tests.transactional.kinds import Caller
from tests.world import SOON, World, eventually


def shop(world: World) -> tuple[semel.App, Any]:
    app = world.app()

    @app.task
    async def ship(order: int) -> str:
        return f"shipped {order}"

    return app, ship


async def orders(world: World) -> int:
    return await world.count("orders")


async def result_of(caller: Caller, handle: Any) -> Any:
    """Wait as the face of the handle does."""
    if isinstance(handle, SyncHandle):
        return await asyncio.to_thread(handle.result, SOON)
    return await handle.result(SOON)


async def test_committed_it_runs(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as connection, world.worker(app):
        await connection.begin()
        await connection.insert(1)
        handle = await connection.start(ship, 1, task_id="order-1")
        assert not handle.duplicate
        await connection.commit()
        assert await result_of(connection, handle) == "shipped 1"
        assert await orders(world) == 1


async def test_rolled_back_it_never_was(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as connection:
        await connection.begin()
        await connection.insert(1)
        handle = await connection.start(ship, 1, task_id="order-1")
        await connection.rollback()
        with pytest.raises(semel.NotCommitted, match="rolled back"):
            await result_of(connection, handle)
        assert await world.traces() == 0
        assert await orders(world) == 0
        assert await app.find("order-1") is None


async def test_a_savepoint_that_is_undone_takes_its_starts_along(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as connection:
        await connection.begin()
        await connection.insert(1)
        kept = await connection.start(ship, 1, task_id="kept")
        await connection.savepoint()
        await connection.insert(2)
        gone = await connection.start(ship, 2, task_id="gone")
        await connection.undo_savepoint()
        await connection.commit()
        assert [one.key for one in await app.list()] == [kept.key]
        assert await orders(world) == 1
        with pytest.raises(semel.NotCommitted):
            await result_of(connection, gone)


async def test_a_duplicate_inside_gives_a_handle(world: World, caller: Callers) -> None:
    """Of what was committed before, and of what this transaction itself has started."""
    app, ship = shop(world)
    async with caller(app) as connection:
        before = await app.enqueue(ship, 1, task_id="before")
        await connection.begin()
        same = await connection.start(ship, 1, task_id="before")
        assert (same.id, same.duplicate) == (before.id, True)
        own = await connection.start(ship, 2, task_id="own")
        again = await connection.start(ship, 2, task_id="own")
        assert (again.id, again.duplicate) == (own.id, True)
        await connection.insert(1)
        await connection.commit()
        assert {one.id for one in await app.list()} == {before.id, own.id}
        assert await orders(world) == 1


async def test_other_input_is_a_conflict_and_the_transaction_goes_on(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as connection:
        await connection.begin()
        await connection.start(ship, 1, task_id="order-1")
        with pytest.raises(semel.KeyConflict) as caught:
            await connection.start(ship, 2, task_id="order-1")
        assert caught.value.differences == {"order": (1, 2)}
        with pytest.raises(semel.TaskAlreadyExists):
            await connection.start(ship, 1, task_id="order-1", on_duplicate="raise")
        await connection.insert(1)
        await connection.commit()
        assert await orders(world) == 1
        assert len(await app.list()) == 1


async def test_many_at_once_with_options(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as connection:
        await connection.begin()
        await connection.insert(1)
        calls = [(ship.call(n), f"order-{n}") for n in range(120, 0, -1)]
        handles = await connection.call("enqueue_many", calls)
        assert [handle.key for handle in handles] == [key for _, key in calls]
        await connection.start(ship, 0, delay="1h", priority=3)
        await connection.start(ship, 0)
        await connection.commit()
        assert await world.count() == 122
        assert (await world.count("semel_ready"), await world.count("semel_later")) == (121, 1)


async def test_a_finished_key_starts_again_in_the_transaction(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as connection:
        async with world.worker(app):
            first = await app.enqueue(ship, 1, task_id="order-1")
            await first.result(SOON)
        await connection.begin()
        done = await connection.start(ship, 1, task_id="order-1")
        assert (done.id, done.duplicate) == (first.id, True)
        with pytest.raises(semel.TaskAlreadyCompleted) as caught:
            await connection.start(ship, 1, task_id="order-1", on_duplicate="raise")
        assert caught.value.result == "shipped 1"
        second = await connection.start(ship, 1, task_id="order-1", reuse="always")
        assert second.id != first.id
        await connection.rollback()
        found = await app.find("order-1")
        assert found is not None
        assert found.id == first.id


async def test_the_second_of_two_that_race_waits_and_then_decides(world: World, caller: Callers) -> None:
    app, ship = shop(world)
    async with caller(app) as one, caller(app) as two:
        for first_commits in (True, False):
            key = f"order-{first_commits}"
            await one.begin()
            first = await one.start(ship, 1, task_id=key)
            await two.begin()
            waiting = asyncio.create_task(two.start(ship, 1, task_id=key))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await (one.commit() if first_commits else one.rollback())
            second = await asyncio.wait_for(waiting, SOON)
            assert second.duplicate is first_commits
            assert (second.id == first.id) is first_commits
            await two.commit()
            found = await app.find(key)
            assert found is not None
            assert found.id == second.id


async def test_workers_of_other_processes_are_woken(world: World, caller: Callers) -> None:
    """Another app stands for another process: it is woken by the commit, not by the call."""
    app, ship = shop(world)
    other, _ = shop(world)
    async with caller(app) as connection, world.worker(other):
        await connection.begin()
        handle = await connection.start(ship, 1)
        await connection.insert(1)
        await connection.commit()
        execution = (await app.get(handle.id)).id
        await eventually(lambda: _ended(other, execution))


async def _ended(app: semel.App, id: str) -> bool:
    return (await (await app.get(id)).status()).terminal
