"""A server that takes no writes, such as a standby after a failover, is let go of; who comes after it is used."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest

import semel
from bench.server import Postgres
from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.script import ConnectionRole
from semel.engines.postgres import store as postgres_store
from semel.engines.postgres.address import Address, split_hosts
from semel.engines.postgres.store import PostgresStore
from tests.faults.proxy import Proxy
from tests.faults.server import fragile_postgres, standby_of
from tests.world import World, eventually, unbounded


def _store(app: semel.App) -> PostgresStore:
    engine = unbounded(app.engine)
    assert isinstance(engine, JournalEngine)
    assert isinstance(engine._store, PostgresStore)
    return engine._store


async def _demote(store: PostgresStore) -> None:
    """Every connection now belongs to a server that takes no writes, as those to a demoted primary do."""
    for wires in store._wires.values():
        for wire in wires:
            async with wire as connection:
                await connection.execute("set default_transaction_read_only = on")


async def test_connections_to_a_read_only_server_are_replaced(postgres_world: World) -> None:
    app = postgres_world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    async with postgres_world.worker(app, lease="1s") as worker:
        assert await (await app.enqueue(work, 1)).result(timeout="60s") == 1
        await _demote(_store(app))
        assert await (await app.enqueue(work, 2)).result(timeout="60s") == 2
        await eventually(lambda: worker.healthy)


async def test_a_read_only_server_is_unavailable_until_it_takes_writes(
    postgres_world: World, postgres_server: Postgres
) -> None:
    app, name = postgres_world.app(), postgres_world.url.rpartition("/")[2]

    @app.task
    async def work(n: int) -> int:
        return n

    async with postgres_world.worker(app, lease="1s"):
        assert await (await app.enqueue(work, 1)).result(timeout="60s") == 1
        await postgres_world.sql(f"alter database {name} set default_transaction_read_only = on")
        await postgres_world.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like 'semel%' and datname = current_database()"
        )
        with pytest.raises(semel.EngineUnavailable, match="takes no writes"):
            await app.enqueue(work, 2, task_id="k")
        postgres_server.sql(f"alter database {name} reset default_transaction_read_only")
        assert await (await app.enqueue(work, 2, task_id="k")).result(timeout="60s") == 2


def test_a_url_with_several_hosts_is_one_url_for_each() -> None:
    assert split_hosts("postgresql://me:pw@a:1,b:2/db?sslmode=require") == [
        "postgresql://me:pw@a:1/db?sslmode=require",
        "postgresql://me:pw@b:2/db?sslmode=require",
    ]
    assert split_hosts("postgresql:///db") == ["postgresql:///db"]


async def test_who_cannot_wait_for_a_silent_host_tries_the_next_one_first(postgres_world: World) -> None:
    """A heartbeat has little time: a host that accepts and says nothing must not use it up each time."""
    connected = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    silent = server.sockets[0].getsockname()[1]
    good = postgres_world.url.partition("@")[2]
    address = Address(f"postgresql://postgres@127.0.0.1:{silent},{good}")
    first = asyncio.create_task(address.connect({}))
    await connected.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    connection = await address.connect({})
    await connection.close()
    server.close()


async def test_a_pool_that_mixes_sessions_is_named(postgres_world: World) -> None:
    """As PgBouncer in transaction mode does: what was prepared is not there. The connection is replaced."""
    app = postgres_world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    await app.enqueue(work, 1)
    async with _store(app)._wires[ConnectionRole.ADMIT][0] as connection:
        await connection.execute("deallocate all")
    with pytest.raises(semel.EngineError, match="pool_mode = session"):
        await app.enqueue(work, 2)
    await app.enqueue(work, 3)


async def test_a_connection_without_a_server_behind_it_is_not_ready(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a pool that is too small: it lets clients in, and has no connection for them."""
    monkeypatch.setattr(postgres_store, "ANSWER_WITHIN", 0.2)
    async with Proxy(postgres_world.url).running() as proxy:
        store = PostgresStore(proxy.url)
        connect = store._address.connect

        async def let_in(settings: Mapping[str, str]) -> asyncpg.Connection:
            connection = await connect(settings)
            proxy.deafen_all()
            return connection

        monkeypatch.setattr(store._address, "connect", let_in)
        with pytest.raises(semel.EngineUnavailable):
            await store.make_ready([ConnectionRole.SETTLE])
        assert not store.is_ready([ConnectionRole.SETTLE])
        monkeypatch.setattr(store._address, "connect", connect)
        await store.make_ready([ConnectionRole.SETTLE])
        assert store.is_ready([ConnectionRole.SETTLE])
        await store.close()


@pytest.mark.proof
@pytest.mark.timeout(200)
def test_a_failover_to_a_standby_needs_no_restart(tmp_path: Path) -> None:
    """A streaming replica beside the primary, both in the URL, and one app that only ever knew the replica."""
    with fragile_postgres() as primary, standby_of(primary) as standby:
        primary.sql("create database semel")
        url = f"postgresql://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/semel"

        async def play() -> None:
            alone = semel.App(standby.url("semel"), config=None)
            async with semel.App(url, config=None, auto_migrate=True) as app:

                @app.task(retry=3)
                async def work(n: int) -> int:
                    return n

                async with app.worker(lease="3s") as worker:
                    assert await (await app.enqueue(work, 1)).result(timeout="30s") == 1
                    with pytest.raises(semel.EngineUnavailable, match="takes no writes"):
                        await alone.workers()
                    await asyncio.to_thread(primary.end, signal.SIGQUIT)
                    await asyncio.to_thread(standby.promote)

                    async def accepted() -> bool:
                        try:
                            return await (await app.enqueue(work, 2, task_id="k")).result(timeout="5s") == 2
                        except (semel.EngineUnavailable, TimeoutError):
                            return False

                    await eventually(accepted, within=60)
                    await eventually(lambda: worker.healthy)
                    assert len(await alone.workers()) == 1
            await alone.close()

        asyncio.run(play())
