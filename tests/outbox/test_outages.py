"""The engine is away while orders are committed: nothing is lost, and each is started once when it is back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import semel
from semel.testing.temporal_server import TemporalServer, temporal_server
from tests.outbox.places import Place
from tests.world import SOON, eventually

ORDERS = 5


def shop(url: str, place: Place) -> tuple[semel.App, semel.Task[[int], str]]:
    app = semel.App(url, config=None, outbox=place.url, auto_migrate=True)

    @app.task
    def ship(order: int) -> str:
        return f"shipped {order}"

    return app, ship


async def order(app: semel.App, ship: semel.Task[[int], str], place: Place, number: int) -> semel.Handle[str]:
    async with place.transaction() as connection:
        await place.insert(connection, number)
        return await app.enqueue(ship, number, task_id=f"ship:{number}", connection=connection)


@pytest.fixture
def cluster(tmp_path: Path) -> TemporalServer:
    with temporal_server(tmp_path) as server:
        yield server


@pytest.mark.slow
def test_a_cluster_that_is_killed_and_comes_back(cluster: TemporalServer, sqlite_place: Place) -> None:
    async def main() -> None:
        app, ship = shop(cluster.url("default"), sqlite_place)
        async with app.relay():
            first = await order(app, ship, sqlite_place, 0)
            await eventually(lambda: sqlite_place.sql("select 1 from outbox_events where status = 'processed'"))
            cluster.kill()
            handles = [first, *[await order(app, ship, sqlite_place, number) for number in range(1, ORDERS)]]
            await eventually(lambda: sqlite_place.sql("select 1 from outbox_destinations"))
            assert await sqlite_place.sql("select max(retry_count) from outbox_events") == [(0,)]
            cluster.start()
            async with app.worker():
                results = [await handle.result(timeout=SOON * 2) for handle in handles]
        assert results == [f"shipped {number}" for number in range(ORDERS)]
        assert await sqlite_place.statuses() == ["processed"] * ORDERS
        assert await sqlite_place.sql("select max(retry_count) from outbox_events") == [(0,)]
        assert [handle.duplicate for handle in handles] == [False] * ORDERS
        await app.close()

    asyncio.run(main())


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none", "temporal://127.0.0.1:1/default"])
async def test_an_engine_that_was_never_there(sqlite_place: Place, url: str) -> None:
    """The request path does not need it; a relay waits for it, and costs no row a try."""
    app, ship = shop(url, sqlite_place)
    for number in range(3):
        await order(app, ship, sqlite_place, number)
    async with app.relay() as (relay,):
        await eventually(lambda: sqlite_place.sql("select 1 from outbox_destinations where failures > 1"))
        assert relay.healthy
    assert (
        await sqlite_place.sql("select status, retry_count, leased_by from outbox_events") == [("pending", 0, None)] * 3
    )
    await app.close()


# asyncpg itself leaves a connection unclosed that is cut while it is being opened.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_business_database_that_goes_away(postgres_place: Place, tmp_path: Path) -> None:
    """Its connections are cut again and again; the relay opens new ones, and loses nothing."""
    app, ship = shop(f"sqlite:///{tmp_path}/engine.db", postgres_place)
    async with app.relay(poll="100ms"), app.worker():
        for number in range(ORDERS):
            await postgres_place.sql(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'semel relay' "
                "and datname = current_database()"
            )
            handle = await order(app, ship, postgres_place, number)
            assert await handle.result(timeout=SOON) == f"shipped {number}"
    assert await postgres_place.statuses() == ["processed"] * ORDERS
    await app.close()
