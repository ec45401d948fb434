"""Faults 13, 14 and 16: announcements may be lost, large or impossible; work is done all the same."""

from __future__ import annotations

import asyncio
import struct

import pytest

import semel
from semel.engines.journal import leases
from semel.engines.journal.claims import claim, load_lanes
from semel.engines.journal.engine import JournalEngine
from tests.faults.proxy import Proxy
from tests.world import World, eventually, unbounded


@pytest.mark.slow
async def test_a_deaf_listener_is_noticed_and_replaced(postgres_world: World) -> None:
    """fault 13: the connection is open and silent. Work begins within the poll interval, then listening works again."""
    client = postgres_world.app()
    async with Proxy(postgres_world.url).running() as proxy, semel.App(proxy.url, config=None) as app:
        for one in (client, app):

            @one.task(name="work")
            async def work(n: int) -> int:
                return n

        async with app.worker(lease="3s") as worker:
            assert await (await client.enqueue(client.tasks["work"], 1)).result(timeout="60s") == 1
            await eventually(lambda: proxy.ears == 1)
            proxy.deafen_ears()
            assert await (await client.enqueue(client.tasks["work"], 2)).result(timeout="60s") == 2
            for n in range(3, 12):
                assert await (await client.enqueue(client.tasks["work"], n)).result(timeout="60s") == n
                if proxy.ears > 1:
                    break
            assert proxy.ears > 1
            assert worker.healthy


async def test_announcements_of_many_things_fit(world: World) -> None:
    """fault 14: a thousand at once, in many lanes, settled together."""
    app = world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    calls = [work.call(n) for n in range(1000)]
    handles = await app.enqueue_many(calls)
    for priority in range(50):
        handles.append(await app.enqueue(work, priority, priority=priority))
    async with world.worker(app, concurrency=1000):
        results = await asyncio.gather(*(handle.result(timeout="30s") for handle in handles))
    assert len(results) == 1050


LANES = 2500
MANY_LANES = f"""
insert into semel_lane (namespace, queue, priority)
  with recursive n(i) as (select 1 union all select i + 1 from n where i < {LANES})
  select 'default', 'q-' || i, 0 from n
"""
LAST = "(select max(id) from semel_lane where queue like 'q-%')"
SCATTER = f"update semel_ready set lane = {LAST} - seq % {LANES}"


@pytest.mark.slow
async def test_recovery_and_due_work_in_thousands_of_queues_fit_into_announcements(world: World) -> None:
    """fault 14: what a dead worker held in 2,500 queues is put back, and due tasks of as many queues become ready."""
    one, two, done = world.app(), world.app(), []
    for app in (one, two):

        @app.task(name="work")
        async def work(n: int) -> None:
            done.append(n)

    await one.enqueue_many([one.tasks["work"].call(n) for n in range(LANES)])
    await world.sql(MANY_LANES)
    await world.sql(SCATTER)
    engine = unbounded(one.engine)
    assert isinstance(engine, JournalEngine)
    store = engine._store
    dead = await store.run(leases.register, 4711, "default", "dead", "all", 3_600_000_000)
    lanes = [row[0] for row in (await store.run(load_lanes, "default", None))[0]]
    held = await store.run(claim, dead, lanes, [0] * len(lanes), ["work"], LANES)
    assert len({claim.lane for claim in held}) == LANES
    async with world.worker(two, lease="2h", concurrency=LANES) as worker:
        await eventually(lambda: worker.heart._beats[1] > 0)  # the first one, which would find what is moved below
        world._workers.remove(worker)  # it does not beat because the clock moves, only when it is told of work
        await world.advance("61m")
        assert len(await store.run(leases.recover)) == LANES
        await eventually(lambda: len(done) == LANES)
    assert await world.count("semel_ready") == 0

    await one.enqueue_many([one.tasks["work"].call(n) for n in range(LANES)], delay="1h")
    await world.sql(f"update semel_later set lane = {LAST} - {ROW_NUMBER[world.engine]}")
    await world.advance("2h")
    assert len(await store.run(leases.promote, LANES)) == LANES


ROW_NUMBER = {
    "sqlite": "rowid % 2500",
    "postgres": "(select x.seq from semel_execution x where x.id = semel_later.execution) % 2500",
}


async def test_a_pool_that_refuses_session_settings_is_named() -> None:
    """fault 16: PgBouncer answers the startup message with an error; ours says what to do about it."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        body = await reader.readexactly(length - 4)
        if body[:4] == struct.pack("!i", 80877103):  # asks for TLS first
            writer.write(b"N")
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
        fields = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: plan_cache_mode\0\0"
        writer.write(b"E" + struct.pack("!i", len(fields) + 4) + fields)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with semel.App(f"postgresql://postgres@127.0.0.1:{port}/x", config=None) as app:
        with pytest.raises(semel.EngineError, match="PgBouncer") as caught:
            await app.migrate()
    assert not isinstance(caught.value, semel.EngineUnavailable)
    server.close()
