"""`semel worker --metrics-port`: metrics of one process, of several, and a port that is taken."""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.cli import shell
from tests.world import World, eventually

pytestmark = pytest.mark.slow


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that nobody uses now."""
    for first in (random.randrange(20_000, 60_000) for _ in range(1000)):
        taken = []
        try:
            for port in range(first, first + count):
                one = socket.socket()
                taken.append(one)
                one.bind(("127.0.0.1", port))
        except OSError:
            continue
        else:
            return first
        finally:
            for one in taken:
                one.close()
    raise AssertionError("no ports are free")


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


async def test_a_worker_serves_its_metrics(sqlite_world: World, tmp_path: Path) -> None:
    app, name, port = sqlite_world.app(), shell.shop(sqlite_world, tmp_path), free_ports(1)

    @app.task(queue="payments")
    async def charge(order: str, cents: int = 100) -> dict[str, object]:
        return {}

    with shell.worker(tmp_path, f"{name}:app", "--metrics-port", str(port)) as running:
        await (await app.enqueue(charge, "o-1")).result("60s")
        ended = 'semel_executions_total{kind="task",name="charge",queue="payments",status="completed"} 1.0'

        async def counted() -> bool:
            text = await asyncio.to_thread(get, port)
            return ended in text and 'semel_queue_pending{queue="payments"} 0.0' in text

        await eventually(counted)
        shell.ask_to_stop(running)
        assert await asyncio.to_thread(running.wait, 60) == 0


async def test_each_process_has_a_port_of_its_own(sqlite_world: World, tmp_path: Path) -> None:
    await sqlite_world.app().migrate()
    name, port = shell.shop(sqlite_world, tmp_path), free_ports(2)
    running = shell.process("worker", f"{name}:app", "--processes", "2", "--metrics-port", str(port), cwd=tmp_path)
    try:
        for _ in range(2):
            await asyncio.to_thread(shell.await_line, running, "ready")

        async def counted(one: int) -> bool:
            return "semel_workers 2.0" in await asyncio.to_thread(get, one)

        for one in (port, port + 1):
            await eventually(functools.partial(counted, one))
        shell.ask_to_stop(running)
        assert await asyncio.to_thread(running.wait, 60) == 0
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


async def test_a_port_that_is_taken_is_told(sqlite_world: World, tmp_path: Path) -> None:
    name, port = shell.shop(sqlite_world, tmp_path), free_ports(1)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        running = shell.process("worker", f"{name}:app", "--metrics-port", str(port), cwd=tmp_path)
        _, told = await asyncio.to_thread(running.communicate, None, 60)
    assert running.returncode == 2
    assert f"metrics cannot be served on 127.0.0.1:{port}" in told
