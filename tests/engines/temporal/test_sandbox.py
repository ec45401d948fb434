"""People's modules are loaded afresh in Temporal's sandbox, what is installed is not, and what may not be parks."""

from __future__ import annotations

from typing import Any

import pytest

import semel
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


async def test_libraries_at_the_top_of_a_module_are_passed_through(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handle = await app.start_workflow(sandboxed.fine, "ada", workflow_id="k")
        assert await handle.result(timeout="20s") == ["hello ada", "apsw", "asyncpg", "rich", "typer"]


async def test_the_module_itself_is_loaded_for_each_workflow(cluster: TemporalWorld, app: semel.App) -> None:
    async with cluster.worker(app):
        handles = [await app.start_workflow(sandboxed.where, workflow_id=f"k{n}") for n in range(2)]
        seen = {await handle.result(timeout="20s") for handle in handles}
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
