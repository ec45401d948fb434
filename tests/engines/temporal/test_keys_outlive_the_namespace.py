"""A window that is longer than the namespace remembers is kept by the records database, or refused."""

from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.service import RPCError, RPCStatusCode

import semel
from tests.conftest import new_world
from tests.temporal_world import TemporalWorld
from tests.world import ended, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> TemporalWorld:
    world = new_world("temporal", tmp_path, request)
    assert isinstance(world, TemporalWorld)
    return world


def define(app: semel.App, runs: list[str]) -> tuple[semel.Task[[str], str], semel.Workflow[[str], str]]:
    @app.task(retention="20d", dedup_window="90d", retry=1)
    async def charge(order: str) -> str:
        runs.append(order)
        if order == "broken" and len(runs) == 1:
            raise ValueError("no funds")
        return f"charged {order}"

    @app.workflow(retention="20d", dedup_window="90d")
    async def process(ctx: semel.Context, order: str) -> str:
        return await ctx.execute_task(charge, order)

    return charge, process


async def forget(world: TemporalWorld, id: str) -> None:
    """As the namespace does when its retention is over."""
    client = await world.client()
    run, _, workflow = id.partition("@")
    where = WorkflowExecution(workflow_id=workflow, run_id=run)
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(namespace=client.namespace, workflow_execution=where)
    )

    async def gone() -> bool:
        found = [one async for one in client.list_workflows(f"RunId = '{run}'")]
        try:
            await client.get_workflow_handle(workflow, run_id=run).describe()
        except RPCError as error:
            return not found and error.status is RPCStatusCode.NOT_FOUND
        return False

    await eventually(gone)


async def app_of(world: TemporalWorld, **options: Any) -> semel.App:
    await world.client()  # makes the namespace, which keeps for thirty days
    return world.app(auto_migrate=None, **options)


@pytest.mark.parametrize("kind", ["task", "workflow"])
async def test_the_key_and_the_result_are_there_after_the_cluster_forgot(cluster: TemporalWorld, kind: str) -> None:
    app, runs = await app_of(cluster), list[str]()
    charge, process = define(app, runs)

    async def ask(order: str) -> semel.Handle[str]:
        if kind == "task":
            return await app.enqueue(charge, order, task_id="k")
        return await app.start_workflow(process, order, workflow_id="k")

    async with cluster.worker(app):
        first = await ask("o-1")
        assert await first.result(timeout="60s") == "charged o-1"
        await forget(cluster, first.id)
        again = await ask("o-1")
        assert (again.duplicate, again.id) == (True, first.id)
        assert await again.result(timeout="60s") == "charged o-1"
        with pytest.raises(semel.KeyConflict, match="order: 'o-1' -> 'o-2'"):
            await ask("o-2")
        assert (await first.describe()).status == "completed"
        assert "did not run" in str(await app.explain("k", kind=kind))
        await cluster.advance("91d")
        assert not (await ask("o-1")).duplicate
    assert runs[:1] == ["o-1"]


async def test_a_failed_one_frees_its_key_there_too(cluster: TemporalWorld) -> None:
    app, runs = await app_of(cluster), list[str]()
    charge, _ = define(app, runs)
    async with cluster.worker(app):
        first = await app.enqueue(charge, "broken", task_id="k")
        assert await ended(first) == "failed"
        await forget(cluster, first.id)
        second = await app.enqueue(charge, "broken", task_id="k")
        assert not second.duplicate
        assert await second.result(timeout="60s") == "charged broken"
        assert (await second.describe()).previous_id == first.id


async def test_one_that_is_run_again_is_remembered_too(cluster: TemporalWorld) -> None:
    app, runs = await app_of(cluster), list[str]()
    charge, _ = define(app, runs)
    async with cluster.worker(app):
        first = await app.enqueue(charge, "broken", task_id="k")
        assert await ended(first) == "failed"
        again = await app.redrive(first.id)
        assert await again.result(timeout="60s") == "charged broken"
        await forget(cluster, first.id)
        await forget(cluster, again.id)
        same = await app.enqueue(charge, "broken", task_id="k")
        assert (same.duplicate, same.id) == (True, again.id)


async def test_without_records_it_is_refused(cluster: TemporalWorld) -> None:
    await cluster.client()
    app = semel.App(cluster.url, config=None)
    charge, _ = define(app, [])
    with pytest.raises(semel.ConfigError, match=r"task 'charge' is to be kept for 90d, and namespace .* keeps for 30d"):
        await app.enqueue(charge, "o-1", task_id="k")
    with pytest.raises(semel.ConfigError, match="is to be kept for 90d"):
        async with app.worker():
            raise AssertionError("it started")
    assert not (await app.enqueue(charge, "o-1")).duplicate  # without a key there is no window to keep
    await app.close()


async def test_a_result_that_is_to_be_kept_longer_is_refused_with_records_too(cluster: TemporalWorld) -> None:
    app = await app_of(cluster)

    @app.task(retention="31d")
    async def work() -> None: ...

    with pytest.raises(semel.ConfigError, match="Run semel migrate"):
        await app.enqueue(work)
    await app.migrate()
    await app.close()
    assert not (await app.enqueue(work)).duplicate


async def test_explain_says_what_it_does_not_know(cluster: TemporalWorld) -> None:
    await cluster.client()
    app = semel.App(cluster.url, config=None)

    @app.task
    async def work() -> None: ...

    for _ in range(2):
        await app.enqueue(work, task_id="k")
    assert "Duplicate counts are unavailable: there is no records database" in str(await app.explain("k"))
    await app.close()
