"""With Temporal's tracing interceptor, who asked, the workflow, its tasks and its signals are one trace."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.client import Interceptor, OutboundInterceptor, SignalWorkflowInput, StartWorkflowInput, WorkflowHandle
from temporalio.contrib.opentelemetry import TracingInterceptor

import semel
from tests.engines.temporal.tenants import QUEUE, their_worker
from tests.temporal_world import TemporalWorld
from tests.world import SOON

pytestmark = pytest.mark.slow


class Traces:
    """Spans, as they would go to a collector."""

    def __init__(self) -> None:
        self.memory = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.memory))
        self.tracer = provider.get_tracer("tests")
        self.interceptor = TracingInterceptor(self.tracer)

    def of(self, trace: int) -> set[str]:
        spans = self.memory.get_finished_spans()
        return {span.name for span in spans if span.context is not None and span.context.trace_id == trace}


async def test_from_the_caller_to_the_task_it_is_one_trace(cluster: TemporalWorld) -> None:
    traces = Traces()
    app = cluster.app(interceptors=[traces.interceptor])

    @app.task
    async def charge(order: str) -> str:
        return order

    @app.workflow
    async def process(ctx: semel.Context, order: str) -> str:
        await ctx.wait_signal("go")
        return await ctx.execute_task(charge, order)

    async with app.worker():
        with traces.tracer.start_as_current_span("checkout") as span:
            handle = await app.start_workflow(process, "o-1", workflow_id="w")
            again = await app.start_workflow(process, "o-1", workflow_id="w")
            await handle.signal("go")
        with traces.tracer.start_as_current_span("pay") as other:
            await app.enqueue(charge, "o-2", task_id="t")
        assert await again.result(timeout=SOON) == "o-1"
        assert await (await app.enqueue(charge, "o-2", task_id="t")).result(timeout=SOON) == "o-2"
    assert traces.of(span.get_span_context().trace_id) >= {
        "checkout", "StartWorkflow:process", "SignalWorkflow:go", "RunWorkflow:process", "StartActivity:charge",
        "RunActivity:charge",
    }  # fmt: skip
    assert traces.of(other.get_span_context().trace_id) >= {"pay", "StartWorkflow:charge", "RunActivity:charge"}
    assert [s.name for s in traces.memory.get_finished_spans() if not s.status.is_ok and s.status.description] == []


async def test_also_into_workflows_of_others(cluster: TemporalWorld) -> None:
    traces = Traces()
    app = cluster.app(interceptors=[traces.interceptor])
    async with their_worker(await cluster.client(), interceptors=[traces.interceptor]):
        with traces.tracer.start_as_current_span("sign up") as span:
            handle = await app.start_workflow(
                "TenantProvisioningWorkflow", {"name": "a"}, 1, False, workflow_id="t", task_queue=QUEUE
            )
        await handle.result(timeout=SOON)
    assert traces.of(span.get_span_context().trace_id) >= {
        "StartWorkflow:TenantProvisioningWorkflow", "RunWorkflow:TenantProvisioningWorkflow", "RunActivity:make_schema",
    }  # fmt: skip


class Changing(Interceptor):
    """What people's own interceptors do: look, and change."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        seen = self.seen

        class Outbound(OutboundInterceptor):
            async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
                seen.append(("start", input.workflow))
                input.memo = {**(input.memo or {}), "region": "eu"}
                return await super().start_workflow(input)

            async def signal_workflow(self, input: SignalWorkflowInput) -> None:
                seen.append(("signal", input.signal))
                input.args = ["changed"]
                await super().signal_workflow(input)

        return Outbound(next)


async def test_what_interceptors_change_is_what_is_sent(cluster: TemporalWorld) -> None:
    changing = Changing()
    app = cluster.app(interceptors=[changing])

    @app.workflow
    async def process(ctx: semel.Context) -> Any:
        return await ctx.wait_signal("go")

    async with app.worker():
        handle = await app.start_workflow(process, workflow_id="w")
        await handle.signal("go", "original")
        assert await handle.result(timeout=SOON) == "changed"
    described = await (await cluster.client()).get_workflow_handle("w").describe()
    assert await described.memo_value("region") == "eu"
    assert changing.seen == [("start", "process"), ("signal", "go")]
