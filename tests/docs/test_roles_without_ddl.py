"""The role that the PostgreSQL page makes can do everything but change tables."""

from __future__ import annotations

import pytest

import semel
from bench.server import Postgres
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/postgresql.md"


async def test_the_role_on_the_page_is_enough(postgres_server: Postgres) -> None:
    postgres_server.sql("create database roles")
    owner = postgres_server.url("roles")
    async with semel.App(owner, config=None) as app:
        await app.migrate()
    for block in blocks(PAGE):
        if block.language == "sql":
            postgres_server.sql(block.body, "roles")
    url = owner.replace("postgres@", "shop_app@")
    app = semel.App(url, config=None)
    app.configure_queue("slow", rate_limit="100/sec", concurrency=5)

    @app.task(queue="slow", retention="0")
    async def charge(order_id: str) -> str:
        return order_id

    @app.task(retry=1, concurrency_key="{order_id}")
    async def fail(order_id: str) -> None:
        raise ValueError(order_id)

    async with app, app.worker():
        handle = await app.enqueue(charge, "o-1", task_id="o-1")
        assert (await app.enqueue(charge, "o-1", task_id="o-1")).id == handle.id
        assert await handle.result("60s") == "o-1"
        failed = await app.enqueue(fail, "o-1")
        with pytest.raises(semel.ExecutionFailed):
            await failed.result("60s")
        await app.redrive(failed.id)
        assert await (await app.enqueue(charge, "o-2", delay="1h")).cancel() == "cancelled"
        await app.explain("o-1")
        await app.clean()
        assert all(finding.ok for finding in await app.doctor())
