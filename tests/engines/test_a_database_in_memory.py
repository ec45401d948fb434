"""`sqlite:///:memory:` in tests of people's own: closed twice, used again, shared by a fixture."""

from __future__ import annotations

import asyncio

import semel


async def test_it_may_be_closed_twice_and_used_again_as_an_empty_one() -> None:
    app = semel.App("sqlite:///:memory:", config=None)

    @app.task
    async def charge(cents: int) -> int:
        return cents

    for _ in range(3):
        async with asyncio.timeout(30), app, app.worker():
            assert await app.list() == []
            handle = await app.enqueue(charge, 1, task_id="k")
            assert not handle.duplicate
            assert await handle.result(timeout="20s") == 1
        async with asyncio.timeout(30):
            await app.close()


def test_the_sync_face_may_be_closed_twice_and_used_again() -> None:
    app = semel.App("sqlite:///:memory:", config=None)

    @app.task
    def charge(cents: int) -> int:
        return cents

    for _ in range(2):
        assert not app.sync.enqueue(charge, 1, task_id="k").duplicate
        app.sync.close()
        app.sync.close()
