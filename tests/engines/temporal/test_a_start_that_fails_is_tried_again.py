"""A worker whose start failed leaves nothing behind that keeps the next one, in the same process, from starting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.bridge.worker import Worker as BridgeWorker

import semel
from semel.engines.temporal import worker as workers
from semel.engines.temporal.workers import Presence
from tests.temporal_world import TemporalWorld
from tests.world import eventually


async def say_nothing(*_: Any, **__: Any) -> Any:
    raise semel.EngineUnavailable("the cluster is away.")


async def never_answer(*_: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("polls", [True, False])
async def test_a_worker_starts_after_a_start_that_failed(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch, polls: bool
) -> None:
    """`polls`: the cluster went away when the SDK's worker had begun to poll, not before."""
    app = cluster.app()

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    handle = await app.enqueue(double, 4)
    with monkeypatch.context() as away:
        away.setattr(workers, "STOP_WITHIN", 0.1 if not polls else workers.STOP_WITHIN)
        away.setattr(Presence, "tell", say_nothing)
        if not polls:
            away.setattr(BridgeWorker, "validate", never_answer)
        for _ in range(2):
            with pytest.raises(semel.EngineUnavailable):
                async with app.worker():
                    raise AssertionError("it has started")
    async with app.worker() as worker:
        assert await handle.result("60s") == 8
        await eventually(lambda: worker.healthy)


async def test_a_start_that_is_cancelled_leaves_nothing_behind(
    cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, asked = cluster.app(), asyncio.Event()

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async def tell(*_: Any, **__: Any) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def start() -> None:
        async with app.worker():
            raise AssertionError("it has started")

    handle = await app.enqueue(double, 4)
    with monkeypatch.context() as away:
        away.setattr(Presence, "tell", tell)
        starting = asyncio.create_task(start())
        await asked.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    async with app.worker():
        assert await handle.result("60s") == 8
