"""With a codec nothing of what people pass around can be read in the cluster, and everything still works."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, GetWorkflowExecutionHistoryRequest
from temporalio.converter import DataConverter

import semel
from semel.engines.temporal.connect import converter
from tests.engines.temporal.sealed import Seal
from tests.engines.temporal.tenants import QUEUE, their_worker
from tests.temporal_world import TemporalWorld
from tests.world import SOON, ended, eventually, waits

pytestmark = pytest.mark.slow

SECRET = "confidential"


def note(text: str) -> str:
    return text


def shop(cluster: TemporalWorld, may_fail: asyncio.Event | None = None) -> tuple[semel.App, Any]:
    app = cluster.app(codec=Seal())

    @app.task(retry=1)
    async def charge(text: str) -> str:
        semel.current().heartbeat(progress=text)
        if may_fail is not None and text.endswith("!"):
            await may_fail.wait()  # heartbeats go out, with the progress
            raise ValueError(text)
        return text

    @app.workflow
    async def process(ctx: semel.Context, text: str) -> str:
        await ctx.execute_task(charge, text)
        await ctx.execute_task(charge, text, task_id="child")
        await ctx.step(note, text)
        ctx.publish("state", text)
        return text + str(await ctx.wait_signal("more"))

    @app.workflow
    async def fails(ctx: semel.Context, text: str) -> str:
        raise ValueError(text)

    @app.entity
    class Box:
        text: str = ""

        @semel.handler
        async def put(self, ctx: semel.EntityContext, text: str) -> str:
            self.text += text
            return self.text

    return app, (charge, process, fails, Box)


async def raw(cluster: TemporalWorld) -> bytes:
    """Everything that the cluster shows of every workflow."""
    client = await cluster.client()
    await cluster.listed()
    found = b""
    async for one in client.list_workflows():
        execution = WorkflowExecution(workflow_id=one.id, run_id=one.run_id)
        history = await client.workflow_service.get_workflow_execution_history(
            GetWorkflowExecutionHistoryRequest(namespace=client.namespace, execution=execution)
        )
        described = await client.workflow_service.describe_workflow_execution(
            DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
        )
        found += history.SerializeToString() + described.SerializeToString() + one.raw_info.SerializeToString()
    return found


async def test_nothing_can_be_read_in_the_cluster(cluster: TemporalWorld) -> None:
    may_fail = asyncio.Event()
    app, (charge, process, fails, box) = shop(cluster, may_fail)
    async with app.worker():
        assert await (await app.enqueue(charge, SECRET, task_id="t")).result(timeout=SOON) == SECRET
        handle = await waits(await app.start_workflow(process, SECRET, workflow_id="w"))

        async def published() -> bool:
            return await handle.published("state") == SECRET

        await eventually(published)
        await handle.signal("more", SECRET, dedup_key="k")
        assert await handle.result(timeout=SOON) == SECRET * 2
        with pytest.raises(semel.ExecutionFailed, match=SECRET):
            await (await app.start_workflow(fails, SECRET, workflow_id="f")).result(timeout=SOON)
        assert await app.entity(box, "b").ask("put", SECRET, timeout=SOON) == SECRET
        doomed = await app.enqueue(charge, SECRET + "!", task_id="d")

        async def progress() -> bool:
            return (await doomed.describe()).progress == SECRET + "!"

        await eventually(progress)
        seen = await raw(cluster)
        may_fail.set()
        assert await ended(doomed) is semel.Status.FAILED
    seen += await raw(cluster)
    assert SECRET.encode() not in seen
    assert b"binary/sealed" in seen


async def test_what_is_read_again_is_as_it_was(cluster: TemporalWorld) -> None:
    app, (charge, process, fails, box) = shop(cluster)
    async with app.worker():
        first = await app.enqueue(charge, SECRET, task_id="t")
        await first.result(timeout=SOON)
        assert (await app.enqueue(charge, SECRET, task_id="t")).id == first.id
        with pytest.raises(semel.KeyConflict) as conflict:
            await app.enqueue(charge, "other", task_id="t")
        assert conflict.value.differences == {"text": (SECRET, "other")}
        handle = await app.start_workflow(process, SECRET, workflow_id="w")
        await handle.signal("more", "x")
        assert await handle.result(timeout=SOON) == SECRET + "x"
        failed = await app.start_workflow(fails, SECRET, workflow_id="f")
        assert await ended(failed) is semel.Status.FAILED
        error = (await failed.describe()).error
        assert error is not None
        assert error.message == SECRET
        assert any("note" in str(event) for event in await handle.history())
        assert [one.ok for one in await app.replay(name=process.name)] == [True]
        assert await (await handle.reset("note")).result(timeout=SOON) == SECRET + "x"
        await app.entity(box, "b").send("put", SECRET)

        async def stored() -> bool:
            return (await app.entity(box, "b").state()).text == SECRET

        await eventually(stored)


async def test_workflows_of_others_are_started_through_the_codec_that_they_use(cluster: TemporalWorld) -> None:
    app, plain = cluster.app(codec=Seal()), await cluster.client()
    config = plain.config()
    config["data_converter"] = DataConverter(payload_codec=Seal())
    async with their_worker(type(plain)(**config)):
        args: list[Any] = [{"name": SECRET, "plan": "gold"}, 1, False]
        handle = await app.start_workflow("TenantProvisioningWorkflow", *args, workflow_id="tenant", task_queue=QUEUE)
        assert (await handle.result(timeout=SOON))["schema"] == f"schema_{SECRET}"
    assert SECRET.encode() not in await raw(cluster)


async def test_why_one_is_stuck_is_told_through_the_codec(cluster: TemporalWorld) -> None:
    app, plain = cluster.app(codec=Seal()), await cluster.client()
    config = plain.config()
    config["data_converter"] = converter(Seal())
    async with their_worker(type(plain)(**config)):
        tenant = {"name": "a", "plan": SECRET}
        handle = await app.start_workflow(
            "TenantProvisioningWorkflow", tenant, 1, False, workflow_id="t", task_queue=QUEUE
        )

        async def stuck() -> bool:
            error = (await handle.describe()).error
            return error is not None and SECRET in error.message

        await eventually(stuck)
        assert SECRET.encode() not in await raw(cluster)
        assert any(SECRET in finding.detail for finding in await app.doctor() if not finding.ok)


async def test_without_the_codec_it_says_so(cluster: TemporalWorld) -> None:
    app, (charge, *_) = shop(cluster)
    async with app.worker():
        handle = await app.enqueue(charge, SECRET, task_id="t")
        await handle.result(timeout=SOON)
    blind = cluster.app()
    found = await blind.find("t")
    assert found is not None
    with pytest.raises(semel.NotDecodable, match="codec"):
        await found.result(timeout=SOON)


def test_a_codec_is_for_temporal_only() -> None:
    with pytest.raises(semel.ConfigError, match="codec= is Temporal's"):
        semel.App("sqlite:///:memory:", config=None, codec=Seal())
    with pytest.raises(semel.ConfigError, match="interceptors= is Temporal's"):
        semel.App("sqlite:///:memory:", config=None, interceptors=[object()])  # type: ignore[list-item]
