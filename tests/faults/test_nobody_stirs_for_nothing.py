"""A look that changes nothing wakes nobody: else two loops that share a database would never rest."""

from __future__ import annotations

import asyncio

import semel
from semel.contract.lifecycle import Status
from semel.engines.journal.settle import Ending, settle
from semel.engines.journal.turns import waiters_of
from tests.faults.shop import Shop
from tests.faults.site import Site
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


async def test_an_ending_tells_whether_a_flow_waited_for_it(site: Site) -> None:
    """Only then has the worker to look for flows that it woke."""
    async with Shop(site) as shop:
        await shop.app.enqueue(shop.charge, "o-1", task_id="alone")
        awaited = await shop.app.enqueue(shop.charge, "o-2", task_id="awaited")
        await site.sql(f"update semel_execution set waiters = '{waiters_of('flow', 1)}' where id = '{awaited.id}'")
        worker, claims = await shop.hold()
        endings = [Ending(one, Status.COMPLETED, b'"x"') for one in claims]
        assert len(endings) == 2
        waited: set[int] = set()
        assert await shop.store.run(settle, worker, endings, waited) == set()
        assert waited == {one.token for one in claims if one.execution == awaited.id}
        again: set[int] = set()
        assert await shop.store.run(settle, worker, endings, again) == set()
        assert again == {one.token for one in claims}, "the reply to the first try may have been lost"
