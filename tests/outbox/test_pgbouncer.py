"""PgBouncer in transaction mode, in front of a relay's database and of a caller's connection: both work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

import semel
from tests.engines.test_pgbouncer import folder, needs_pgbouncer, pool  # noqa: F401, the first is a fixture
from tests.outbox.places import Place
from tests.world import SOON, World, eventually

pytestmark = [pytest.mark.slow, needs_pgbouncer]
ORDERS = 30
STRICT = {"pool_mode": "transaction", "default_pool_size": "2", "ignore_startup_parameters": "extra_float_digits"}
"""As Debian sets it up, apart from the mode: what clients want to set for a session is refused."""


@pytest.fixture
def pooled(postgres_place: Place, folder: Path) -> Iterator[str]:  # noqa: F811
    with pool(postgres_place.url, folder / "pool", **STRICT) as url:
        yield url


def shop(url: str, outbox: str) -> tuple[semel.App, semel.Task[[int], int]]:
    app = semel.App(url, config=None, outbox=outbox)

    @app.task
    async def ship(order: int) -> int:
        return order

    return app, ship


async def test_relays_behind_it(world: World, postgres_place: Place, pooled: str) -> None:
    """They hear of no commit, and look every second. Marks, leases and cleaning need no session."""
    app, ship = shop(world.url, pooled)
    async with app, app.relay(pooled, pooled, batch=5) as relays, app.worker():
        handles = []
        for number in range(ORDERS):
            async with postgres_place.transaction() as connection:
                await postgres_place.insert(connection, number)
                handles.append(await app.enqueue(ship, number, task_id=f"ship:{number}", connection=connection))
        assert [await handle.result(timeout=SOON) for handle in handles] == list(range(ORDERS))
        await eventually(lambda: all(relay._database._pooled for relay in relays))  # type: ignore[attr-defined]
        late = await order(app, ship, postgres_place, ORDERS)
        assert await late.result(timeout=SOON) == ORDERS
    assert await postgres_place.sql("select distinct status, retry_count from outbox_events") == [("processed", 0)]
    assert await app.outbox.purge("processed") == ORDERS + 1
    assert not await postgres_place.sql("select * from outbox_relays")


async def order(app: semel.App, ship: semel.Task[[int], int], place: Place, number: int) -> semel.Handle[int]:
    async with place.transaction() as connection:
        return await app.enqueue(ship, number, task_id=f"ship:{number}", connection=connection)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_callers_connection_through_it(world: World, postgres_place: Place, pooled: str, driver: str) -> None:
    """As these drivers want to be used with such a pool: without prepared statements."""
    app, ship = shop(world.url, postgres_place.url)

    async def buy(number: int) -> semel.Handle[int]:
        if driver == "asyncpg":
            one = await asyncpg.connect(pooled, statement_cache_size=0)
            try:
                async with one.transaction():
                    await one.execute(f"insert into orders (id) values ({number})")
                    return await app.enqueue(ship, number, task_id=f"ship:{number}", connection=one)
            finally:
                await one.close()
        other = await psycopg.AsyncConnection.connect(pooled, prepare_threshold=None)
        async with other:
            await other.execute(f"insert into orders (id) values ({number})")
            return await app.enqueue(ship, number, task_id=f"ship:{number}", connection=other)

    async with app, app.relay(), app.worker():
        handles = await asyncio.gather(*(buy(number) for number in range(ORDERS)))
        assert sorted([await handle.result(timeout=SOON) for handle in handles]) == list(range(ORDERS))
    assert await postgres_place.statuses() == ["processed"] * ORDERS


async def test_the_engines_own_database_through_it(postgres_world: World, folder: Path) -> None:  # noqa: F811
    """The engine is connected directly, and the caller's transaction comes through the pool: the execution is in it."""
    app, ship = shop(postgres_world.url, postgres_world.url)
    with pool(postgres_world.url, folder / "pool", **STRICT) as url:
        async with app:
            await app.migrate()

            async def buy(number: int, *, undo: bool) -> semel.Handle[int]:
                one = await asyncpg.connect(url, statement_cache_size=0)
                try:
                    change = one.transaction()
                    await change.start()
                    handle = await app.enqueue(ship, number, task_id=f"ship:{number}", connection=one)
                    await (change.rollback() if undo else change.commit())
                    return handle
                finally:
                    await one.close()

            async with app.worker():
                handles = await asyncio.gather(*(buy(number, undo=number % 3 == 0) for number in range(ORDERS)))
                kept = [handle for number, handle in enumerate(handles) if number % 3]
                assert [await handle.result(timeout=SOON) for handle in kept] == [n for n in range(ORDERS) if n % 3]
            assert await postgres_world.count() == len(kept)
