"""Starts and signals on their way out, through the interceptors that the App was given.

Temporal's own client makes up a new request id for each start, so Semel sends its own requests. What people put between
a client and its cluster, such as tracing, sees them nevertheless: the same interceptors, in the same order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from temporalio.api.workflowservice.v1 import SignalWorkflowExecutionRequest, StartWorkflowExecutionRequest
from temporalio.client import Client, OutboundInterceptor, SignalWorkflowInput, StartWorkflowInput, WorkflowHandle
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy

Send = Callable[[], Awaitable[None]]


async def start(
    client: Client, request: StartWorkflowExecutionRequest, args: Sequence[Any], memo: Mapping[str, Any], send: Send
) -> None:
    """Put arguments and memo into a request, let every interceptor have a look, and send what they made of it."""
    encode = client.data_converter.encode

    async def last(input: StartWorkflowInput) -> None:
        request.input.payloads.extend(await encode(input.args) if input.args else ())
        for name, value in (input.memo or {}).items():
            request.memo.fields[name].CopyFrom((await encode([value]))[0])
        for name, payload in input.headers.items():
            request.header.fields[name].CopyFrom(payload)
        await send()

    input = StartWorkflowInput(
        workflow=request.workflow_type.name,
        args=args,
        id=request.workflow_id,
        task_queue=request.task_queue.name,
        execution_timeout=None,
        run_timeout=None,
        task_timeout=None,
        id_reuse_policy=WorkflowIDReusePolicy(request.workflow_id_reuse_policy),
        id_conflict_policy=WorkflowIDConflictPolicy(request.workflow_id_conflict_policy),
        retry_policy=None,
        cron_schedule="",
        memo=memo,
        search_attributes=None,
        start_delay=None,
        headers={},
        start_signal=None,
        start_signal_args=(),
        static_summary=None,
        static_details=None,
        ret_type=None,
        rpc_metadata={},
        rpc_timeout=None,
        request_eager_start=False,
        priority=Priority.default,
    )
    first = _first(client, last)
    await (last(input) if first is None else first.start_workflow(input))


async def signal(client: Client, request: SignalWorkflowExecutionRequest, args: Sequence[Any], send: Send) -> None:
    """The same for a signal."""

    async def last(input: SignalWorkflowInput) -> None:
        request.input.payloads.extend(await client.data_converter.encode(input.args) if input.args else ())
        for name, payload in input.headers.items():
            request.header.fields[name].CopyFrom(payload)
        await send()

    to = request.workflow_execution
    input = SignalWorkflowInput(to.workflow_id, to.run_id, request.signal_name, args, {}, {}, None)
    first = _first(client, last)
    await (last(input) if first is None else first.signal_workflow(input))


def _first(client: Client, last: Callable[[Any], Awaitable[None]]) -> OutboundInterceptor | None:
    """The first of the interceptors, behind whose last the request is sent; None: there are none."""
    interceptors = client.config(active_config=True)["interceptors"]
    first: OutboundInterceptor = _Last(client, last)
    for one in reversed(list(interceptors)):
        first = one.intercept_client(first)
    return first if interceptors else None


class _Last(OutboundInterceptor):
    """Behind all interceptors. That an id is taken is no error here, or traces would show one for each duplicate."""

    def __init__(self, client: Client, send: Callable[[Any], Awaitable[None]]) -> None:
        self._client = client
        self._send = send

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        """See OutboundInterceptor."""
        await self._send(input)
        return WorkflowHandle(self._client, input.id)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        """See OutboundInterceptor."""
        await self._send(input)
