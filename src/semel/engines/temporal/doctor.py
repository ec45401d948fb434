"""Everything that could be wrong with a Temporal server, as `semel doctor` looks at it."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeTaskQueueRequest,
    DescribeTaskQueueResponse,
    GetSystemInfoRequest,
    GetSystemInfoResponse,
    PollWorkflowTaskQueueRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError

from semel.contract.durations import format_duration
from semel.engine.protocol import Finding
from semel.engines.temporal.namespace import SEARCH_ATTRIBUTES, Kept, look, namespace_error, type_name
from semel.engines.temporal.stuck_workflows import Looked, find_stuck

LEAST_SERVER = (1, 24)
"""The first that takes a policy for ids that are in use together with one for ids that were."""
TESTED_SERVER = "1.32"
NEEDED = ("internal_error_differentiation", "upsert_memo", "activity_failure_include_heartbeat")
HELPFUL = ("eager_workflow_start", "count_group_by_execution_status")
"""Without these it is slower, or tells less."""
MOST_SKEW = 5.0
MOST_QUEUES = 20
CLOCK_WITHIN = 3.0


async def examine(
    client: Client, needs: timedelta, clock: Callable[[], float], queues: Sequence[str] = ()
) -> list[Finding]:
    """Look at the server, the namespace, clocks, task queues and workflows that do not get on.

    `needs` is how long the namespace has to keep, `clock` the time here, `queues` those that somebody declared; queues
    of running workflows are found by themselves. EngineUnavailable when the server does not answer.
    """
    try:
        info = await client.workflow_service.get_system_info(GetSystemInfoRequest(), retry=True)
        findings = [_version(info.server_version), _capabilities(info)]
        kept = await look(client)
        findings += _namespace(client.namespace, kept, needs)
        if kept is None:
            return findings
        findings.append(await _clock(client, clock))
        looked = await find_stuck(client, await _reports(client))
        names = sorted({*queues, *looked.queues})
        findings += [await _queue(client, name, looked.queues.get(name, 0)) for name in names[:MOST_QUEUES]]
        if len(names) > MOST_QUEUES:
            findings.append(Finding(True, "queues", f"looked at {MOST_QUEUES} of {len(names)}"))
        return findings + _stuck(looked)
    except RPCError as error:
        raise namespace_error(error, "tell how it is") from error


def _version(version: str) -> Finding:
    found = re.match(r"(\d+)\.(\d+)", version)
    old = found is not None and (int(found[1]), int(found[2])) < LEAST_SERVER
    least = ".".join(map(str, LEAST_SERVER))
    detail = f"{version or 'not told'}; tested with {TESTED_SERVER}"
    return Finding(not old, "server", f"{detail}: use {least} or newer" if old else detail)


def _capabilities(info: GetSystemInfoResponse) -> Finding:
    missing = [name for name in NEEDED if not getattr(info.capabilities, name)]
    if missing:
        return Finding(False, "capabilities", f"missing: {', '.join(missing)}; use a newer server")
    without = [name for name in HELPFUL if not getattr(info.capabilities, name)]
    return Finding(True, "capabilities", f"without {', '.join(without)}" if without else "all that are used")


def _namespace(name: str, kept: Kept | None, needs: timedelta) -> list[Finding]:
    if kept is None:
        return [Finding(False, "namespace", f"there is no {name}: run semel migrate")]
    enough = kept.retention >= needs
    detail = f"{name} keeps for {format_duration(kept.retention)}, {format_duration(needs)} needed"
    hint = "" if enough else ": run semel migrate, give records=, or declare a shorter window"
    wrong = kept.wrong
    if kept.missing:
        index = f"{' and '.join(kept.missing)} missing: run semel migrate"
    elif wrong is None:
        index = ", ".join(f"{name} ({type_name(type_)})" for name, type_ in SEARCH_ATTRIBUTES.items())
    else:
        index = f"{wrong[0]} is a {wrong[1]} and has to be a {wrong[2]}: remove it, then semel migrate"
    return [Finding(enough, "namespace", detail + hint), Finding(kept.indexed, "search attribute", index)]


async def _reports(client: Client) -> bool:
    """Does the server itself mark workflows whose tasks fail?"""
    request = DescribeNamespaceRequest(namespace=client.namespace)
    found = await client.workflow_service.describe_namespace(request, retry=True)
    return found.namespace_info.capabilities.reported_problems_search_attribute


async def _clock(client: Client, clock: Callable[[], float]) -> Finding:
    """No request asks a server for its time. But it notes when a worker last asked for work: so ask, where there is
    none, and read the note."""
    queue = f"semel-doctor-{uuid.uuid4().hex[:8]}"
    before = clock()
    async with _asking(client, queue):
        for _ in range(int(CLOCK_WITHIN / 0.02)):
            found = await _describe(client, queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
            after = clock()
            if found.pollers:
                seen = found.pollers[0].last_access_time.ToDatetime(UTC).timestamp()
                skew = max(before - seen, seen - after, 0.0)
                return Finding(skew < MOST_SKEW, "clock", f"this machine is {skew:.1f} s off the server's clock")
            await asyncio.sleep(0.02)
    return Finding(True, "clock", "the server does not tell its time")


@asynccontextmanager
async def _asking(client: Client, queue: str) -> AsyncIterator[None]:
    """Within the block a worker seems to ask for work on a queue that has none."""
    request = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), identity="semel doctor"
    )
    poll = asyncio.create_task(
        client.workflow_service.poll_workflow_task_queue(request, timeout=timedelta(seconds=CLOCK_WITHIN))
    )
    try:
        yield
    finally:
        poll.cancel()
        with suppress(asyncio.CancelledError, RPCError):
            await poll


async def _describe(client: Client, queue: str, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind, report_stats=True
    )
    return await client.workflow_service.describe_task_queue(request, retry=True)


async def _queue(client: Client, name: str, running: int) -> Finding:
    workflows = await _describe(client, name, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW)
    activities = await _describe(client, name, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)
    waiting = workflows.stats.approximate_backlog_count + activities.stats.approximate_backlog_count
    detail = (
        f"{len(workflows.pollers)} ask for workflow tasks, {len(activities.pollers)} for activities; {waiting} waiting"
    )
    deserted = (waiting or running) and not workflows.pollers
    if waiting:
        oldest = max(s.approximate_backlog_age.ToTimedelta() for s in (workflows.stats, activities.stats))
        detail += f", the oldest for {oldest.total_seconds():.0f} s"
    return Finding(not deserted, f"queue {name}", f"{detail}: start a worker for it" if deserted else detail)


def _stuck(looked: Looked) -> list[Finding]:
    told = f"of {looked.running} that run"
    if looked.seen < looked.running:
        told += f", of which {looked.seen} were looked at"
    found = [Finding(False, "stuck workflow", str(one)) for one in looked.stuck]
    return [*found, Finding(not found, "workflows", f"{len(found) or 'none'} stuck {told}")]
