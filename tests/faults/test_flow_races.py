"""Small races and delays of workflows that were once lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest

import semel
from semel.engines.journal import control
from tests.faults.conftest import new_site
from tests.faults.flow_shop import FlowShop
from tests.faults.site import Site


def test_a_signal_that_comes_while_a_workflow_is_terminated_leaves_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """PostgreSQL: what wakes a flow at this moment is waited for, or its row of work would stay for ever."""
    site = new_site("postgres", tmp_path, request)
    asyncio.run(_terminated_while_a_signal_comes(site))


async def _terminated_while_a_signal_comes(site: Site) -> None:
    async with FlowShop(site) as shop:
        handle = await shop.app.start_workflow(shop.patient, workflow_id="w-1")
        await shop.until("select count(*) from semel_ready")
        sender = await asyncpg.connect(site.url)
        try:
            coming = sender.transaction()
            await coming.start()
            insert = "insert into semel_inbox (execution, kind, name, at) values ($1, 'signal', 'go', 1)"
            await sender.execute(insert, handle.id)
            ending = asyncio.create_task(shop.store.run(control.terminate, "default", handle.id, b"{}"))
            await asyncio.wait([ending], timeout=0.2)
            await coming.commit()
            assert await ending is semel.Status.CANCELLED
        finally:
            await sender.close()
        for table in ("semel_ready", "semel_inbox", "semel_flow"):
            assert await site.sql(f"select * from {table}") == []


async def test_a_delayed_task_of_a_workflow_starts_when_it_is_due(site: Site) -> None:
    """Not only with the next heartbeat."""
    async with FlowShop(site) as shop:

        @shop.app.workflow
        async def later(ctx: semel.Context) -> str:
            return await ctx.execute_task(shop.charge, "o-1", delay="200ms")

        handle = await shop.app.start_workflow(later, workflow_id="w-1")
        await shop.until("select count(*) from semel_flow", lease="10m")
        assert await handle.result("1s") == "o-1"


async def test_timers_go_by_the_clock_of_the_database(site: Site) -> None:
    """An hour apart from the worker's, they still go off in time."""
    await site.advance(3600)
    async with FlowShop(site) as shop:

        @shop.app.workflow
        async def nap(ctx: semel.Context) -> str:
            await ctx.sleep("200ms")
            return "up"

        handle = await shop.app.start_workflow(nap, workflow_id="w-1")
        await shop.until("select count(*) from semel_flow", lease="10m")
        assert await handle.result("1s") == "up"
