"""A look that changes nothing wakes nobody: else two loops that share a database would never rest."""

from __future__ import annotations

import asyncio

import semel
from tests.world import eventually


async def test_waiting_in_one_loop_does_not_keep_the_worker_of_another_busy() -> None:
    app = semel.App("sqlite:///:memory:", config=None)
    gate = asyncio.Event()

    @app.task
    async def work() -> str:
        await gate.wait()
        return "done"

    statements: list[str] = []

    class Count:
        def before(self, statement: str) -> None:
            statements.append(statement)

        def after(self, statement: str) -> None: ...

    async with app, app.worker() as worker:
        handle = await asyncio.to_thread(app.sync.enqueue, work)
        waiting = asyncio.create_task(asyncio.to_thread(handle.result, "20s"))
        await eventually(lambda: worker.busy)
        app.engine._store.tap = Count()
        for _ in range(50):
            await asyncio.sleep(0.01)
        seen = len(statements)
        gate.set()
        assert await waiting == "done"
        await asyncio.to_thread(app.sync.close)
    assert seen < 60, statements[:20]
