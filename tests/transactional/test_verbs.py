"""Everything else that can be part of the caller's transaction: workflows, messages, signals, cancels, schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import semel
from semel.sync_verbs import SyncHandle
from tests.transactional.conftest import Callers
from tests.transactional.kinds import Asyncpg, AsyncSessionSqlite, Caller, InThread, Psycopg2, Sqlite3
from tests.world import SOON, World

SOME = pytest.mark.parametrize(
    "kind",
    [("sqlite", Sqlite3), ("sqlite", AsyncSessionSqlite), ("postgres", Asyncpg), ("postgres", Psycopg2)],
    ids=["sqlite-Sqlite3", "sqlite-AsyncSessionSqlite", "postgres-Asyncpg", "postgres-Psycopg2"],
)


def office(world: World) -> tuple[semel.App, Any, Any, Any]:
    app = world.app()

    @app.workflow
    async def approve(ctx: semel.Context, order: int) -> str:
        return await ctx.wait_signal("answer", type=str)

    @app.task
    async def report() -> None: ...

    @app.entity
    class Points:
        total: int = 0

        @semel.handler
        async def add(self, ctx: semel.EntityContext, n: int) -> int:
            self.total += n
            return self.total

    return app, approve, report, Points


async def on(caller: Caller, verb: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """A verb of a handle or of a ref, with the connection."""
    if isinstance(caller, InThread):
        return await caller.do(lambda: verb(*args, connection=caller.given, **options))
    return await verb(*args, connection=caller.given, **options)


@SOME
async def test_a_workflow_with_its_signal_and_a_message(world: World, caller: Callers) -> None:
    app, approve, _, points = office(world)
    async with caller(app) as connection:
        face: Any = app.sync if isinstance(connection, InThread) else app
        for kept in (False, True):
            await connection.begin()
            await connection.insert(1)
            handle = await connection.call("start_workflow", approve, 1, workflow_id="order-1")
            await on(connection, handle.signal, "answer", "yes")
            await on(connection, face.entity(points, "ada").send, points.add, 5)
            await (connection.commit() if kept else connection.rollback())
            assert await world.count("orders") == kept
            assert await world.count("semel_inbox") == 2 * kept
        async with world.worker(app):
            assert await wait_for(handle) == "yes"
            assert await app.entity(points, "ada").ask(points.add, 1, timeout=SOON) == 6


@SOME
async def test_a_cancel_is_undone_with_its_transaction(world: World, caller: Callers) -> None:
    app, approve, _, _ = office(world)
    async with caller(app) as connection:
        await app.start_workflow(approve, 1, workflow_id="order-1")
        face: Any = app.sync if isinstance(connection, InThread) else app
        found = face.find("order-1") if face is app.sync else await face.find("order-1")
        for kept in (False, True):
            await connection.begin()
            assert await on(connection, found.cancel) == "cancelled"
            await (connection.commit() if kept else connection.rollback())
            execution = await app.find("order-1")
            assert execution is not None
            assert await execution.status() == ("cancelled" if kept else "pending")


@SOME
async def test_nested_code_joins_what_is_bound(world: World, caller: Callers) -> None:
    """Starts without a connection, and schedules, which are created and run in the transaction."""
    app, _, report, _ = office(world)

    async with caller(app) as connection:

        def nested() -> None:
            with app.bind(connection.given):
                app.sync.enqueue(report, task_id="once")
                app.sync.schedules.put("nightly", report, cron="0 3 * * *")
                app.sync.schedules.trigger("nightly", "now")

        for kept in (False, True):
            await connection.begin()
            if isinstance(connection, InThread):
                await connection.do(nested)
            else:
                with app.bind(connection.given):
                    await app.enqueue(report, task_id="once")
                    await app.schedules.put("nightly", report, cron="0 3 * * *")
                    await app.schedules.trigger("nightly", "now")
            await connection.insert(1)
            await (connection.commit() if kept else connection.rollback())
            assert await world.count() == 2 * kept
            assert await world.count("semel_schedule") == kept
            assert await world.count("semel_run") == kept


async def wait_for(handle: Any) -> Any:
    if isinstance(handle, SyncHandle):
        return await asyncio.to_thread(handle.result, SOON)
    return await handle.result(SOON)


@SOME
async def test_schedules_change_with_the_transaction(world: World, caller: Callers) -> None:
    app, _, report, _ = office(world)
    async with caller(app) as connection:
        face: Any = app.sync if isinstance(connection, InThread) else app
        schedules = face.schedules
        for kept in (False, True):
            await connection.begin()
            await on(connection, schedules.put, "nightly", report, cron="0 3 * * *")
            await on(connection, schedules.edit, "nightly", cron="0 4 * * *")
            await on(connection, schedules.pause, "nightly", "not yet")
            await on(connection, schedules.trigger, "nightly", "now")
            await (connection.commit() if kept else connection.rollback())
            assert await world.count("semel_schedule") == kept
            assert await world.count() == kept
        assert (await app.schedules.get("nightly")).note == "not yet"
        await connection.begin()
        await on(connection, schedules.resume, "nightly")
        await on(connection, schedules.delete, "nightly")
        await connection.rollback()
        assert (await app.schedules.get("nightly")).note == "not yet"


@SOME
async def test_an_event_and_its_runs(world: World, caller: Callers) -> None:
    """Event, run and row are one transaction. A second delivery in it is a duplicate, other content is refused."""
    app, _, _, _ = office(world)

    @app.on_event("invoice.paid")
    @app.task
    async def thank(event: semel.EventEnvelope) -> str:
        return event.event_id

    await app.apply()
    event = semel.EventEnvelope(event_id="e-1", source="/shop", type="invoice.paid", data={"cents": 1})
    other = semel.EventEnvelope(event_id="e-1", source="/shop", type="invoice.paid", data={"cents": 2})
    async with caller(app) as connection:
        for kept in (False, True):
            await connection.begin()
            await connection.insert(1)
            published = await connection.call("publish", event)
            assert (published.duplicate, len(published.runs)) == (False, 1)
            again = await connection.call("publish", event)
            assert (again.duplicate, again.runs[0].id) == (True, published.runs[0].id)
            with pytest.raises(semel.KeyConflict, match="cents"):
                await connection.call("publish", other)
            (many,) = await connection.call("publish_many", [event])
            assert many.duplicate
            await (connection.commit() if kept else connection.rollback())
            assert await world.count("orders") == kept
            assert await world.count("semel_event") == kept
        async with world.worker(app):
            assert await wait_for(published.runs[0]) == "e-1"
    await app.close()
