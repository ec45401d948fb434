"""Stricter isolation on PostgreSQL, announcements by the commit, and lanes that block nobody."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import semel
from tests.transactional.test_commit_and_start import shop
from tests.world import SOON, World


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_a_race_for_a_key_is_a_serialization_failure(postgres_world: World, isolation: str) -> None:
    """What was committed before the snapshot is a duplicate as always; what came after it fails the transaction."""
    app, ship = shop(postgres_world)
    before = await app.enqueue(ship, 1, task_id="before")
    connection = await asyncpg.connect(postgres_world.url)
    block = connection.transaction(isolation=isolation)
    await block.start()
    assert (await app.enqueue(ship, 1, task_id="before", connection=connection)).id == before.id
    after = await app.enqueue(ship, 2, task_id="after")
    with pytest.raises(asyncpg.SerializationError):
        await app.enqueue(ship, 2, task_id="after", connection=connection)
    await block.rollback()
    async with connection.transaction(isolation=isolation):
        again = await app.enqueue(ship, 2, task_id="after", connection=connection)
        new = await app.enqueue(ship, 3, task_id="new", connection=connection)
    assert (again.id, again.duplicate, new.duplicate) == (after.id, True, False)
    assert await postgres_world.count() == 3
    await connection.close()


async def test_an_open_transaction_blocks_no_other_start_on_its_queue(postgres_world: World) -> None:
    """Its lane was made beforehand, and is there for everybody."""
    app, ship = shop(postgres_world)
    other, _ = shop(postgres_world)
    connection = await asyncpg.connect(postgres_world.url)
    async with connection.transaction():
        await app.enqueue(ship, 1, queue="new", connection=connection)
        await asyncio.wait_for(other.enqueue(ship, 2, queue="new"), SOON)
        await asyncio.wait_for(app.enqueue(ship, 3, queue="new"), SOON)
    assert await postgres_world.count() == 3
    await connection.close()


async def test_many_starts_in_one_transaction_wake_workers_once(postgres_world: World) -> None:
    app, ship = shop(postgres_world)
    await app.enqueue(ship, 0)
    heard: list[str] = []
    ear = await asyncpg.connect(postgres_world.url)
    await ear.add_listener("semel_work", lambda *what: heard.append(what[-1]))
    connection = await asyncpg.connect(postgres_world.url)
    async with connection.transaction():
        for number in range(20):
            await app.enqueue(ship, number, connection=connection)
        await ear.execute("select 1")
        assert heard == []
    await ear.execute("select 1")
    assert len(heard) == 1
    await connection.close()
    await ear.close()


async def test_business_commits_run_side_by_side_with_starts(postgres_world: World) -> None:
    """64 at once, each with a row and a start: all are there, and none waits for the transaction of another."""
    app, ship = shop(postgres_world)
    await postgres_world.sql("create table orders (id integer primary key)")
    pool = await asyncpg.create_pool(postgres_world.url, min_size=64, max_size=64)
    gate = asyncio.Barrier(64)

    async def order(number: int) -> semel.Handle[str]:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("insert into orders values ($1)", number)
            handle: semel.Handle[str] = await app.enqueue(
                ship, number, task_id=f"order-{number}", connection=connection
            )
            await asyncio.wait_for(gate.wait(), SOON)  # every transaction has its start while all are open
        return handle

    handles = await asyncio.gather(*map(order, range(64)))
    await pool.close()
    assert await postgres_world.count("orders") == 64
    async with postgres_world.worker(app):
        assert await asyncio.gather(*(one.result(SOON) for one in handles)) == [f"shipped {n}" for n in range(64)]
