"""People's own workflows, on their own workers, are started by name under the same decisions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryRequest

import semel
from tests.engines.temporal.tenants import QUEUE, Tenant, TenantProvisioningWorkflow, their_worker
from tests.temporal_world import TemporalWorld
from tests.world import SOON, eventually, waits

pytestmark = pytest.mark.slow

NAME = "TenantProvisioningWorkflow"
ACME = {"name": "acme", "plan": "gold"}


async def provision(
    app: semel.App, tenant: Any, seats: int | None = 1, waits: bool = False, **options: Any
) -> semel.Handle[Any]:
    options = {"workflow_id": "tenant-acme", "task_queue": QUEUE, **options}
    return await app.start_workflow(NAME, tenant, seats, waits, **options)


async def test_it_runs_on_their_worker_and_gives_its_result_as_plain_json(cluster: TemporalWorld) -> None:
    app = cluster.app()
    async with their_worker(await cluster.client()):
        handle = await provision(app, ACME, 5)
        found = await handle.result(timeout=SOON)
    assert found == {"schema": "schema_acme", "plan": "gold", "seats": 5, "approved": []}
    execution = await handle.describe()
    assert (execution.kind, execution.name, execution.key, execution.queue) == ("workflow", NAME, "tenant-acme", QUEUE)
    assert execution.status is semel.Status.COMPLETED


async def test_its_arguments_are_payloads_as_temporals_own_client_makes_them(cluster: TemporalWorld) -> None:
    app, client = cluster.app(), await cluster.client()
    await provision(app, Tenant("acme", "gold"), None, True)
    await client.start_workflow(
        TenantProvisioningWorkflow.run, args=[Tenant("acme", "gold"), None, True], id="by-hand", task_queue=QUEUE
    )

    async def inputs(id: str) -> list[tuple[dict[str, bytes], bytes]]:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=id)
        )
        history = (await client.workflow_service.get_workflow_execution_history(request)).history
        payloads = history.events[0].workflow_execution_started_event_attributes.input.payloads
        return [(dict(payload.metadata), payload.data) for payload in payloads]

    assert await inputs("tenant-acme") == await inputs("by-hand")


async def test_the_same_id_joins_then_replays_and_other_input_is_refused(cluster: TemporalWorld) -> None:
    app = cluster.app()
    async with their_worker(await cluster.client()):
        first = await provision(app, ACME, 5, True)
        joined = await provision(app, ACME, 5, True)
        assert (joined.id, joined.duplicate) == (first.id, True)
        with pytest.raises(semel.WorkflowAlreadyExists):
            await provision(app, ACME, 5, True, on_duplicate="raise")
        with pytest.raises(semel.KeyConflict) as conflict:
            await provision(app, {**ACME, "plan": "free"}, 5, True)
        assert conflict.value.differences == {"args[0].plan": ("gold", "free")}
        with pytest.raises(semel.KeyConflict, match="of another function"):
            await app.start_workflow("RewardsWorkflow", workflow_id="tenant-acme", task_queue=QUEUE)
        await first.signal("close")
        await first.result(timeout=SOON)
        replayed = await provision(app, ACME, 5, True)
        assert (replayed.id, replayed.duplicate) == (first.id, True)
        assert (await replayed.result())["seats"] == 5
        with pytest.raises(semel.KeyConflict, match=r"args: \["):
            await app.start_workflow(NAME, ACME, workflow_id="tenant-acme", task_queue=QUEUE)
        again = await provision(app, ACME, 6, False, reuse="always")
        assert (again.duplicate, again.id != first.id) == (False, True)
        assert (await again.result(timeout=SOON))["seats"] == 6
    told = await app.explain("tenant-acme", kind="workflow")
    assert [one.id for one in told.executions] == [again.id, first.id]
    assert {one.reason: one.count for one in told.suppressed} == {
        "joined": 2, "replayed": 1, "input_differs": 2, "function_differs": 1,
    }  # fmt: skip


async def test_a_hundred_at_once_start_one(cluster: TemporalWorld) -> None:
    app = cluster.app()
    handles = await asyncio.gather(*(provision(app, ACME) for _ in range(100)))
    assert len({handle.id for handle in handles}) == 1
    assert sum(not handle.duplicate for handle in handles) == 1


async def test_a_failed_one_frees_its_id_and_can_be_redriven(cluster: TemporalWorld) -> None:
    app = cluster.app()
    async with their_worker(await cluster.client()):
        first = await provision(app, {"name": "bad"}, 2)
        with pytest.raises(semel.ExecutionFailed, match="there is such a schema") as failed:
            await first.result(timeout=SOON)
        assert failed.value.error_type == "SchemaExists"
        second = await app.redrive(first.id)
        with pytest.raises(semel.ExecutionFailed, match="there is such a schema"):
            await second.result(timeout=SOON)
        third = await provision(app, {"name": "good"}, 2)
        assert (await third.result(timeout=SOON))["schema"] == "schema_good"
    found = (await app.explain("tenant-acme", kind="workflow")).executions
    assert [one.id for one in found] == [third.id, second.id, first.id]


async def test_it_can_be_signalled_cancelled_and_terminated(cluster: TemporalWorld) -> None:
    app = cluster.app()
    async with their_worker(await cluster.client()):
        handle = await waits(await provision(app, ACME, 1, True))
        await handle.signal("approve", {"who": "eve"})
        with pytest.raises(semel.InvalidValue, match="DedupWindow"):
            await handle.signal("approve", {"who": "eve"}, dedup_key="k")
        await handle.signal("close")
        assert (await handle.result(timeout=SOON))["approved"] == ["eve"]
        with pytest.raises(semel.WorkflowEnded):
            await handle.signal("close")
        stopped = await waits(await provision(app, ACME, 1, True, workflow_id="t-2"))
        assert await stopped.cancel() is semel.Status.RUNNING
        with pytest.raises(semel.ExecutionCancelled):
            await stopped.result(timeout=SOON)
        ended = await waits(await provision(app, ACME, 1, True, workflow_id="t-3"))
        assert await ended.terminate("enough") is semel.Status.CANCELLED
        with pytest.raises(semel.NotFound, match="Temporal's own"):
            await handle.history()


async def test_a_delayed_one_waits_and_can_be_cancelled_meanwhile(cluster: TemporalWorld) -> None:
    app = cluster.app()
    async with their_worker(await cluster.client()):
        later = await provision(app, ACME, delay="1h")
        execution = await later.describe()
        assert execution.status is semel.Status.PENDING
        assert execution.run_at is not None
        assert (await provision(app, ACME, delay="1h")).id == later.id
        assert await later.cancel() is semel.Status.CANCELLED
        soon = await provision(app, ACME, delay="200ms", workflow_id="soon")
        assert (await soon.result(timeout=SOON))["schema"] == "schema_acme"


async def test_what_other_hands_have_started_is_found_and_joined(cluster: TemporalWorld) -> None:
    app, client = cluster.app(), await cluster.client()
    async with their_worker(client):
        by_hand = await client.start_workflow(
            TenantProvisioningWorkflow.run, args=[Tenant("acme", "gold"), 5, True], id="tenant-acme", task_queue=QUEUE
        )
        found = await app.find("tenant-acme", kind="workflow")
        assert found is not None
        assert found.id.startswith(by_hand.first_execution_run_id or "")
        joined = await provision(app, ACME, 5, True)
        assert (joined.id, joined.duplicate) == (found.id, True)
        with pytest.raises(semel.KeyConflict) as conflict:
            await provision(app, ACME, 7, True)
        assert conflict.value.differences == {"args[1]": (5, 7)}
        await found.signal("close")
        assert (await found.result(timeout=SOON))["seats"] == 5
        await eventually(lambda: app.list(kind="workflow", status="completed"))
        cluster._skew += 3600  # past the minute in which a result is fresh
        assert (await found.result())["seats"] == 5
        assert (await provision(app, ACME, 5, True)).id == found.id
        assert "tenant-acme" in str(await app.explain("tenant-acme", kind="workflow"))


async def test_what_other_hands_have_started_is_not_redriven(cluster: TemporalWorld) -> None:
    app, client = cluster.app(), await cluster.client()
    await client.start_workflow(TenantProvisioningWorkflow.run, Tenant("acme"), id="t", task_queue=QUEUE)
    found = await app.find("t", kind="workflow")
    assert found is not None
    await found.terminate()
    with pytest.raises(semel.NotRedrivable, match="not started by Semel"):
        await app.redrive(found.id)


async def test_a_window_that_the_cluster_does_not_keep_is_refused(cluster: TemporalWorld) -> None:
    """Nobody but the cluster remembers them: a ledger is written by the run itself, and theirs know of none."""
    app = cluster.app()
    app.configure_queue(QUEUE, dedup_window="365d")
    with pytest.raises(semel.ConfigError, match=r"is to be kept for 365d"):
        await provision(app, ACME)


async def test_wrong_calls_are_told_what_is_wrong(cluster: TemporalWorld) -> None:
    app = cluster.app()
    with pytest.raises(semel.InvalidValue, match="needs task_queue"):
        await app.start_workflow(NAME, workflow_id="t")  # type: ignore[call-overload]
    with pytest.raises(semel.InvalidValue, match="say task_queue='q'"):
        await app.start_workflow(NAME, workflow_id="t", queue="q")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="by position"):
        await app.start_workflow(NAME, workflow_id="t", task_queue="q", tenant=1)  # type: ignore[call-overload]
    with pytest.raises(semel.InvalidKey, match="kept for tasks"):
        await app.start_workflow(NAME, workflow_id="task:t", task_queue="q")
    with pytest.raises(semel.NotEncodable, match="argument 2"):
        await app.start_workflow(NAME, 1, float("nan"), workflow_id="t", task_queue="q")
    with pytest.raises(semel.PayloadTooLarge):
        await app.start_workflow(NAME, "x" * 600_000, "x" * 600_000, workflow_id="t", task_queue="q")


async def test_only_a_cluster_knows_workflows_by_name() -> None:
    async with semel.App("sqlite:///:memory:", config=None) as app:
        with pytest.raises(semel.InvalidValue, match="this app runs on sqlite"):
            await app.start_workflow(NAME, workflow_id="t", task_queue="q")
