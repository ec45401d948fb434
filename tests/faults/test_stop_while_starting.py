"""A worker that is asked to stop before it has begun does not run hot, and leaves nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from semel.engines.journal.worker import JournalWorker
from semel.settings import Settings
from tests.world import SOON, World


async def test_a_worker_that_is_stopped_while_it_starts_stops(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    worker = app.engine.worker(app.tasks, None, Settings())
    assert isinstance(worker, JournalWorker)
    refresh, gate, reached = worker.intake.refresh, asyncio.Event(), asyncio.Event()

    async def slow_refresh() -> None:
        reached.set()
        await gate.wait()
        await refresh()

    monkeypatch.setattr(worker.intake, "refresh", slow_refresh)
    starting = asyncio.create_task(worker.start())
    await reached.wait()
    stopping = asyncio.create_task(worker.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(SOON):
        await asyncio.gather(starting, stopping)
    assert await world.sql("select * from semel_worker") == []
    assert not worker.healthy


async def test_a_worker_that_never_started_can_be_stopped(world: World) -> None:
    app = world.app()
    worker = app.engine.worker(app.tasks, None, Settings())
    await worker.stop()
    assert not worker.healthy
