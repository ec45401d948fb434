"""Workers that are given work of functions they do not have: what the server is told, and what it costs the work."""

import asyncio
from typing import Any

import pytest
from temporalio.api.enums.v1 import PendingWorkflowTaskState
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse

import semel
from tests.temporal_world import TemporalWorld
from tests.world import eventually

SCHEDULED = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_SCHEDULED
STARTED = PendingWorkflowTaskState.PENDING_WORKFLOW_TASK_STATE_STARTED


def apps(world: TemporalWorld) -> tuple[semel.App, Any, Any, semel.App]:
    """One that has a workflow and a task, and one that has not."""
    app, other = world.app(), world.app()

    @app.task
    async def rare() -> str:
        return "ran"

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        return "ran"

    @other.task
    async def common() -> str:
        return "common"

    return app, rare, flow, other


async def seen(world: TemporalWorld, id: str) -> DescribeWorkflowExecutionResponse:
    client = await world.client()
    return (await client.get_workflow_handle(id).describe()).raw_description


async def test_a_worker_that_stops_hands_back_what_it_was_given(cluster: TemporalWorld) -> None:
    app, _, flow, other = apps(cluster)
    await app.start_workflow(flow, workflow_id="f")

    async def tried(times: int) -> bool:
        task = (await seen(cluster, "f")).pending_workflow_task
        return task.attempt >= times and task.state == STARTED

    async with other.worker() as worker:
        await eventually(lambda: tried(2))
        await eventually(lambda: worker._unknown._held)  # type: ignore[attr-defined]
    found = await seen(cluster, "f")
    assert found.pending_workflow_task.state == SCHEDULED  # for whoever comes next, without a timeout to wait for


async def test_refusals_leave_no_trace_in_a_task(cluster: TemporalWorld) -> None:
    app, rare, _, other = apps(cluster)
    handle = await app.enqueue(rare, task_id="t")

    async def offered(times: int) -> bool:
        activities = (await seen(cluster, "task:t")).pending_activities
        return bool(activities) and activities[0].attempt >= times

    async with other.worker():
        await eventually(lambda: offered(2))
        events = (await seen(cluster, "task:t")).workflow_execution_info.history_length
        await eventually(lambda: offered(4))
        assert (await seen(cluster, "task:t")).workflow_execution_info.history_length == events
        async with app.worker():
            assert await handle.result(timeout="60s") == "ran"
    assert (await handle.describe()).attempt == 1


async def test_workers_tell_which_functions_they_have(cluster: TemporalWorld) -> None:
    app, _, _, other = apps(cluster)
    async with app.worker(), other.worker():
        found = {worker.functions for worker in await app.workers()}
    assert found == {frozenset({"rare", "flow"}), frozenset({"common"})}


@pytest.mark.proof
async def test_after_a_long_time_without_it(cluster: TemporalWorld) -> None:
    """The server waits for longer from try to try, 24 s by now: a worker that joins need not."""
    app, _, flow, other = apps(cluster)
    handle = await app.start_workflow(flow, workflow_id="f")

    async def tried(times: int) -> bool:
        return (await seen(cluster, "f")).pending_workflow_task.attempt >= times

    async with other.worker():
        await eventually(lambda: tried(6), within=120)
        async with app.worker(), asyncio.timeout(20):
            assert await handle.result() == "ran"
