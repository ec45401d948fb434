"""Queues of a cluster: which there are, what is in them, and what is set for them.

A cluster has no list of its queues and no place for their settings. The first is asked of its list of workflows; the
second is kept with the rate limit of the queue, as the reason that was given for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Final

import msgspec
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import RateLimit, TaskQueue, TaskQueueConfig
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, UpdateTaskQueueConfigRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from semel.codec import decoder_of
from semel.contract.durations import format_duration, parse_duration
from semel.contract.lifecycle import Status
from semel.contract.rates import Rate, parse_rate
from semel.engine.protocol import QueueLag, QueueState
from semel.engines.temporal.calls import call, translate_error
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.lists import quoted
from semel.engines.temporal.names import ATTRIBUTE
from semel.errors import ConfigError
from semel.settings import QueueSettings

REASON: Final = "semel: "
"""How the reason begins that holds the settings of a queue."""
MOST: Final = 200
"""Executions of a queue that are looked at one by one."""
AT_ONCE: Final = 20
MOST_QUEUES: Final = 50
"""So many queues are asked how far behind they are."""
_ACTIVITY: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def configure(client: Client, queues: Mapping[str, QueueSettings]) -> None:
    """Settings of queues, for every worker: what is not mentioned stays. The cluster itself keeps the rate limits."""
    for name, wanted in queues.items():
        if wanted.concurrency:
            raise ConfigError(
                f"queue {name!r} declares concurrency={wanted.concurrency}: how many of a queue run at once over all "
                "workers is not limited on Temporal. Limit each worker (semel worker --concurrency), give it a "
                "rate_limit, or use another engine. See docs/reference/engines.md."
            )
        before = await _settings(client, name)
        after = _over(before, wanted)
        if after != before:
            await _write(client, name, after)


async def _write(client: Client, name: str, settings: QueueSettings) -> None:
    rate = settings.rate_limit
    limit = RateLimit(requests_per_second=rate.count / rate.per) if rate is not None and rate.count else None
    request = UpdateTaskQueueConfigRequest(
        namespace=client.namespace,
        identity=client.identity,
        task_queue=name,
        task_queue_type=_ACTIVITY,
        update_queue_rate_limit=UpdateTaskQueueConfigRequest.RateLimitUpdate(
            rate_limit=limit, reason=REASON + _dump(settings)
        ),
    )
    try:
        await client.workflow_service.update_task_queue_config(request, retry=True)
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise translate_error(error) from error
        if limit is not None:
            raise ConfigError(
                f"queue {name!r} declares rate_limit={rate}, and this Temporal server is too old to keep one for a "
                "queue: it needs 1.29 or newer."
            ) from error


async def _settings(client: Client, name: str) -> QueueSettings:
    reason = (await _config(client, name)).queue_rate_limit.metadata.reason
    return _load(reason.removeprefix(REASON)) if reason.startswith(REASON) else QueueSettings()


async def has_rate_limit(client: Client, name: str) -> bool:
    """Has a queue a rate limit, whoever has set it?"""
    config = await _config(client, name)
    return config.queue_rate_limit.HasField("rate_limit") or config.HasField("fairness_keys_rate_limit_default")


async def _config(client: Client, name: str) -> TaskQueueConfig:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=name), task_queue_type=_ACTIVITY, report_config=True
    )
    return (await call(client.workflow_service.describe_task_queue(request, retry=True))).config


def _over(before: QueueSettings, wanted: QueueSettings) -> QueueSettings:
    said = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
    return replace(before, **{name: value for name, value in said.items() if value is not None})


def _dump(settings: QueueSettings) -> str:
    said: dict[str, Any] = {
        "retention": settings.retention and format_duration(settings.retention),
        "dedup_window": settings.dedup_window and format_duration(settings.dedup_window),
        "rate_limit": settings.rate_limit and str(settings.rate_limit),
    }
    return msgspec.json.encode({name: value for name, value in said.items() if value is not None}).decode()


_read_settings: Final = decoder_of(dict[str, str]).decode


def _load(text: str) -> QueueSettings:
    said = _read_settings(text)

    def span(name: str) -> Any:
        return parse_duration(said[name]) if name in said else None

    rate: Rate | None = parse_rate(said["rate_limit"]) if "rate_limit" in said else None
    return QueueSettings(span("retention"), span("dedup_window"), rate)


async def queues(client: Client, reader: Reader, known: Iterable[str], now: datetime) -> list[QueueState]:
    """Queues that were used or are set up, and what is in them."""
    names = {*known, *await used(reader, f"{ATTRIBUTE} IS NOT NULL")}
    return [await _state(client, reader, name, now) for name in sorted(names)]


async def lags(client: Client, reader: Reader) -> list[QueueLag]:
    """How far workers are behind with the queues of running executions: what the cluster itself says of them."""
    names = sorted(await used(reader, f"ExecutionStatus = 'Running' AND {ATTRIBUTE} IS NOT NULL"))
    return [await _lag(client, name) for name in names[:MOST_QUEUES]]


async def _lag(client: Client, name: str) -> QueueLag:
    count, oldest = 0, 0.0
    for kind in (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, _ACTIVITY):
        request = DescribeTaskQueueRequest(
            namespace=client.namespace, task_queue=TaskQueue(name=name), task_queue_type=kind, report_stats=True
        )
        stats = (await call(client.workflow_service.describe_task_queue(request, retry=True))).stats
        count += stats.approximate_backlog_count
        oldest = max(oldest, stats.approximate_backlog_age.ToTimedelta().total_seconds())
    return QueueLag(name, count, oldest if count else None)


async def used(reader: Reader, among: str, but: Iterable[str] = ()) -> set[str]:
    """The queues of those executions, besides some. One question for each, since a cluster cannot group by queue."""
    seen, found = set(but), set[str]()
    while True:
        others = f" AND TaskQueue NOT IN ({', '.join(map(quoted, sorted(seen)))})" if seen else ""
        one = await reader.first(among + others)
        if one is None:
            return found
        seen.add(one.info.task_queue)
        found.add(one.info.task_queue)


async def _state(client: Client, reader: Reader, name: str, now: datetime) -> QueueState:
    query = f"TaskQueue = {quoted(name)} AND ExecutionStatus = 'Running' AND {ATTRIBUTE} IS NOT NULL"
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(seen: Seen) -> str:
        async with gate:
            whole = await reader.describe(seen.info.execution.workflow_id, seen.info.execution.run_id)
            execution = None if whole is None else await reader.execution(whole)
        if execution is None or execution.status not in (Status.PENDING, Status.RUNNING):
            return ""
        due = execution.run_at
        return "delayed" if due is not None and due > now else "ready" if execution.status is Status.PENDING else "runs"

    looked: list[Seen] = []
    async for seen in reader.query(query):
        looked.append(seen)
        if len(looked) == MOST:
            break
    told_of = list(await asyncio.gather(*map(one, looked)))
    more = max(0, await reader.count(query) - MOST) if len(looked) == MOST else 0
    counts = {what: told_of.count(what) for what in ("ready", "runs", "delayed")}
    return QueueState(name, counts["ready"] + more, counts["runs"], counts["delayed"], await _settings(client, name))
