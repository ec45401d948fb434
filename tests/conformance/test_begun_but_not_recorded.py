"""While results cannot be written, a worker begins only so much: it would all run again if the worker died."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.settle import settle
from tests.world import World, eventually, unbounded

CONCURRENCY = 5


@pytest.mark.journal("a cluster hands out a task only when the one before it is recorded")
async def test_at_most_twice_the_concurrency_is_begun(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    begun: list[int] = []

    @app.task
    async def charge(number: int) -> int:
        begun.append(number)
        return number

    engine = unbounded(app.engine)
    assert isinstance(engine, JournalEngine)
    run, goes_on = engine._store.run, asyncio.Event()

    async def stalled(script: Any, *args: Any, **kwargs: Any) -> Any:
        if script is settle:
            await goes_on.wait()
        return await run(script, *args, **kwargs)

    handles = await app.enqueue_many([charge.call(n) for n in range(10 * CONCURRENCY)])
    monkeypatch.setattr(engine._store, "run", stalled)
    async with world.worker(app, concurrency=CONCURRENCY):
        await eventually(lambda: len(begun) == 2 * CONCURRENCY)
        for _ in range(20):  # chances to begin more
            await asyncio.sleep(0)
            await app.find("no such key")
        assert len(begun) == 2 * CONCURRENCY
        goes_on.set()
        assert [await handle.result(timeout="60s") for handle in handles] == list(range(10 * CONCURRENCY))
    assert sorted(begun) == list(range(10 * CONCURRENCY))
