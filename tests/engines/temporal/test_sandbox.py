"""People's modules are loaded afresh in Temporal's sandbox, what is installed is not, and what may not be parks."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import uuid
from typing import Any

import pytest

import semel
from semel.engines.temporal.parking import POKE
from tests.engines.temporal import sandboxed
from tests.temporal_world import TemporalWorld
from tests.world import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def app(cluster: TemporalWorld, monkeypatch: pytest.MonkeyPatch) -> semel.App:
    """The app of the module, with another URL: as SEMEL_URL would give it."""
    found = cluster.app()
    monkeypatch.setattr(found, "tasks", sandboxed.app.tasks)
    return found


async def parked(handle: semel.Handle[Any]) -> Any:
    execution = await handle.describe()
    return execution.status == "waiting" and execution.error


async def tried_again(cluster: TemporalWorld, key: str) -> bool:
    """Was a task that failed tried again, as the same task?"""
    found = await (await cluster.client()).get_workflow_handle(f"entity:{key}").describe()
    return found.raw_description.pending_workflow_task.attempt > 1


async def times_woken(cluster: TemporalWorld, key: str) -> int:
    history = (await cluster.client()).get_workflow_handle(f"entity:{key}").fetch_history_events()
    return len([1 async for one in history if one.workflow_execution_signaled_event_attributes.signal_name == POKE])


async def test_libraries_at_the_top_of_a_module_are_passed_through(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handle = await app.start_workflow(sandboxed.fine, "ada", workflow_id="k")
        assert await handle.result(timeout="60s") == ["hello ada", "apsw", "asyncpg", "rich", "typer"]


async def test_values_of_the_standard_library_are_taken_and_given(cluster: TemporalWorld, app: semel.App) -> None:
    """The sandbox wraps `datetime` and `date`, and nothing can be decoded as a wrapped class."""
    at, day = datetime.datetime(2026, 11, 17, 9, tzinfo=datetime.UTC), datetime.date(2026, 11, 18)
    visit = sandboxed.Visit(
        at, [day], datetime.time(12), datetime.timedelta(hours=2), uuid.UUID(int=7), decimal.Decimal("9.90")
    )
    async with cluster.worker(app):
        handle = await app.start_workflow(sandboxed.dated, at, {"first": day}, visit, workflow_id="k")
        tomorrow, later = await handle.result(timeout="60s")
    assert tomorrow == at + datetime.timedelta(days=1)
    assert later == dataclasses.replace(visit, at=at + datetime.timedelta(hours=2))


async def test_the_module_itself_is_loaded_for_each_workflow(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handles = [await app.start_workflow(sandboxed.where, workflow_id=f"k{n}") for n in range(2)]
        seen = {await handle.result(timeout="60s") for handle in handles}
    assert len(seen | {sandboxed.loaded}) == 3


async def test_a_clock_parks_it_with_what_to_use_instead(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handle = await app.start_workflow(sandboxed.looks_at_the_clock, workflow_id="k")
        error = await eventually(lambda: parked(handle))
    assert error.type.endswith("Forbidden")
    assert "time.time at " in error.message
    assert "sandboxed.py:" in error.message
    assert "ctx.now" in error.message


async def test_a_file_parks_it_with_its_line(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handle = await app.start_workflow(sandboxed.opens_a_file, workflow_id="k")
        error = await eventually(lambda: parked(handle))
    assert error.type.endswith("Forbidden")
    assert "sandboxed.py:" in error.message


async def test_all_of_asyncio_may_be_waited_with(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handle = await app.start_workflow(sandboxed.waits_for_either, workflow_id="k")
        assert await handle.result(timeout="60s") == ["third", "first", "second"]


async def test_wherever_in_the_code_it_is_refused_it_parks(cluster: TemporalWorld, app: semel.App) -> None:
    flows = (
        sandboxed.in_a_group, sandboxed.in_gather, sandboxed.in_wait, sandboxed.in_an_argument,
        sandboxed.while_it_cleans_up,
    )  # fmt: skip
    async with cluster.worker(app):
        handles = [(flow, await app.start_workflow(flow, workflow_id=flow.name)) for flow in flows]
        for flow, handle in handles:
            error = await eventually(lambda handle=handle: parked(handle))
            assert error.type.endswith("Forbidden"), flow.name
            assert "time.time at " in error.message
            assert "sandboxed.py:" in error.message


@pytest.mark.parametrize("handler", ["look", "glance"])
async def test_a_message_waits_whose_handler_is_refused_something(
    cluster: TemporalWorld, app: semel.App, monkeypatch: pytest.MonkeyPatch, handler: str
) -> None:
    """Its key is not spent: code that does without goes on with it."""
    clock = app.entity(sandboxed.Clock, "tower")
    async with cluster.worker(app):
        await clock.send(handler, dedup_key="k")
        handle = await eventually(lambda: app.find(clock.key, kind="entity"))
        error = await eventually(lambda: parked(handle))
        assert error.type.endswith("Forbidden")
        await eventually(lambda: tried_again(cluster, clock.key))
        assert await times_woken(cluster, clock.key) == 1  # each time would begin a new task, without an end
    other = cluster.app()

    @other.entity(name="Clock")
    class Mended:
        looked: int = 0

        @semel.handler
        async def look(self, ctx: semel.EntityContext) -> int:
            self.looked += 1
            await ctx.step(sandboxed.note, "first")
            return self.looked

        @semel.handler
        async def glance(self, ctx: semel.EntityContext) -> int:
            self.looked += 1
            return self.looked

    async with cluster.worker(other):
        assert await other.entity(Mended, "tower").ask(handler, dedup_key="k", timeout="60s") == 1
