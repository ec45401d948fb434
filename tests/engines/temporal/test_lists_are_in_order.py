"""Pages of a list come newest first and hold each execution once, in whatever order they have ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import semel
from tests.conftest import new_world
from tests.world import eventually

pytestmark = pytest.mark.slow


async def test_what_ended_in_another_order_than_it_began(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    world = new_world("temporal", tmp_path, request)
    app = world.app()
    gates = [asyncio.Event() for _ in range(6)]

    @app.task
    async def work(n: int) -> int:
        await gates[n].wait()
        return n

    async with world.worker(app):
        handles = [await app.enqueue(work, n) for n in range(6)]
        for n in (4, 1, 5, 2):
            gates[n].set()
            assert await handles[n].result(timeout="60s") == n
        await eventually(lambda: all_are_listed(app))
        newest = [handle.id for handle in reversed(handles)]
        for size in (1, 2, 6):
            seen: list[str] = []
            while page := await app.list(limit=size, before=seen[-1] if seen else None):
                seen += [one.id for one in page]
            assert seen == newest, size
        for gate in gates:
            gate.set()


async def all_are_listed(app: semel.App) -> bool:
    found = [len(await app.list(status=status)) for status in ("completed", "running")]
    return found == [4, 2]
