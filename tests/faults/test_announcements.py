"""Faults 13, 14 and 16: announcements may be lost, large or impossible; work is done all the same."""

from __future__ import annotations

import asyncio
import struct
import time

import pytest

import semel
from tests.faults.proxy import Proxy
from tests.world import World, eventually


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
            assert await (await client.enqueue(client.tasks["work"], 1)).result(timeout="10s") == 1
            await eventually(lambda: proxy.ears == 1)
            proxy.deafen_ears()
            began = time.monotonic()
            assert await (await client.enqueue(client.tasks["work"], 2)).result(timeout="20s") == 2
            assert time.monotonic() - began < 1.0 + 2.5  # the poll interval is a third of the lease
            for n in range(3, 12):
                assert await (await client.enqueue(client.tasks["work"], n)).result(timeout="20s") == n
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
