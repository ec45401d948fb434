"""Finding executions on a cluster."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from semel.contract.lifecycle import Status
from semel.contract.records import Execution
from semel.engine.protocol import Filter, Waiting, WorkerState
from semel.engines.temporal.executions import Reader, Seen
from semel.engines.temporal.memo import FAILED_MESSAGES
from semel.engines.temporal.names import ATTRIBUTE, ENTITY, SCHEDULED_FOR, TASK, read, slot_of

_STATUS: Final = {
    Status.COMPLETED: "ExecutionStatus = 'Completed'",
    Status.FAILED: "ExecutionStatus = 'Failed'",
    Status.CANCELLED: "ExecutionStatus IN ('Canceled', 'Terminated')",
    Status.TIMED_OUT: "ExecutionStatus IN ('TimedOut', 'Failed')",
}
_KIND: Final = {
    "task": f"WorkflowId STARTS_WITH '{TASK}'",
    "entity": f"WorkflowId STARTS_WITH '{ENTITY}'",
    "workflow": f"WorkflowId NOT STARTS_WITH '{TASK}' AND WorkflowId NOT STARTS_WITH '{ENTITY}'",
}
SPAN: Final = timedelta(minutes=1)
WIDER: Final = 60
SPANS: Final = 3
"""A minute, an hour, some days; what is older is asked for at once."""
MOST_FOLLOWED: Final = 1000
MOST_LOOKED_AT: Final = 10_000
MOST_DESCRIBED: Final = 100
MOST_NAMES: Final = 200
_RUN: Final = re.compile("[0-9a-f-]{1,36}")


async def executions(reader: Reader, which: Filter, now: datetime) -> list[Execution]:
    """Newest first. The cluster's list may lag behind by a moment; what is found is read as it stands."""
    found: list[Execution] = []
    last = None if which.before is None else await _listed(reader, which.before)
    ordered = _newest(reader, _query(which), last) if which.scheduled is None else _by_slot(reader, which, last)
    async for seen in ordered:
        whole = (
            await reader.describe(seen.info.execution.workflow_id, seen.info.execution.run_id) if seen.live else seen
        )
        if whole is None:
            continue
        one = aged(await reader.execution(whole), now)
        if which.status is None or one.status is which.status:
            found.append(one)
        if len(found) >= which.limit:
            break
    return found


async def _newest(reader: Reader, query: str, last: Seen | None) -> AsyncIterator[Seen]:
    """What a query finds, newest first, or older than one of them.

    Clusters give what is open first and then the rest by its end, and cannot be told otherwise. So they are asked for
    what began within a minute, then for longer and longer spans before, each put in order here.
    """
    before = None if last is None else _age(last)
    until, span = datetime.now(UTC) if last is None else last.info.start_time.ToDatetime(tzinfo=UTC), SPAN
    within = "" if last is None else f" AND StartTime <= '{until.isoformat()}'"
    for widest in (False,) * SPANS + (True,):
        since = until - span
        lower = "" if widest else f" AND StartTime > '{since.isoformat()}'"
        found = [seen async for seen in reader.query(query + within + lower)]
        for seen in sorted(found, key=_age, reverse=True):
            if before is None or _age(seen) < before:
                yield seen
        until, span, within = since, span * WIDER, f" AND StartTime <= '{since.isoformat()}'"


async def _by_slot(reader: Reader, which: Filter, last: Seen | None) -> AsyncIterator[Seen]:
    """Runs of schedules, those with the newest slots first, or those after one of them."""
    found = [seen async for seen in reader.query(_query(which))]
    before = None if last is None else _slot(last)
    for seen in sorted(found, key=_slot, reverse=True):
        if before is None or _slot(seen) < before:
            yield seen


def _slot(seen: Seen) -> tuple[datetime, str]:
    id_ = seen.info.execution.workflow_id
    return slot_of(id_) or datetime.min.replace(tzinfo=UTC), id_ + seen.info.execution.run_id


def _age(seen: Seen) -> tuple[int, str]:
    return seen.info.start_time.ToNanoseconds(), seen.info.execution.run_id


async def _listed(reader: Reader, id: str) -> Seen | None:
    """As the list has it: with times that are less exact than its own."""
    seen = await reader.find(id)
    return None if seen is None else await reader.first(f"RunId = {quoted(seen.info.execution.run_id)}")


def _query(which: Filter) -> str:
    clauses = ["ExecutionStatus != 'ContinuedAsNew'"]
    if which.status is not None:
        clauses.append(_STATUS.get(which.status, "ExecutionStatus = 'Running'"))
    if which.queue is not None:
        clauses.append(f"TaskQueue = {quoted(which.queue)}")
    if which.name is not None:
        clauses.append(f"WorkflowType = {quoted(which.name)}")
    if which.kind is not None:
        clauses.append(_KIND.get(which.kind, "WorkflowId = ''"))
    if which.scheduled is not None:
        begin, end = (at.isoformat() for at in which.scheduled)
        clauses.append(f"{SCHEDULED_FOR} >= '{begin}' AND {SCHEDULED_FOR} < '{end}'")
    clauses += [f"{ATTRIBUTE} = {quoted(f'{name}={value}')}" for name, value in which.attributes.items()]
    return " AND ".join(clauses)


def quoted(text: str) -> str:
    """A text in a query."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


async def waiting(
    reader: Reader, *, where: str = "", most: int = MOST_LOOKED_AT, find_ready: bool = False
) -> list[Waiting]:
    """What has not ended, by function and queue: of what Semel started, the newest. What runs now is among it.

    With `find_ready` it is asked of the newest hundred whether they only wait for a worker; older ones are taken to.
    """
    groups: dict[tuple[str, str, str], Waiting] = {}
    looked = 0
    async for seen in reader.query(f"ExecutionStatus = 'Running'{where}"):
        card = seen.card
        if not card.foreign:
            group = card.kind, card.name, seen.info.task_queue
            before = groups.get(group) or Waiting(*group, 0, "", None)
            start = seen.info.start_time.ToDatetime(tzinfo=UTC)
            found = replace(before, count=before.count + 1)
            if not find_ready:
                found = replace(found, id=seen.id, key=card.key, since=start)
            elif looked >= MOST_DESCRIBED or await _is_ready(reader, seen):
                found = replace(found, id=seen.id, key=card.key, since=start, ready=before.ready + 1)
            elif not before.ready:
                found = replace(found, id=seen.id, key=card.key)
            groups[group] = found
        looked += 1
        if looked >= most:
            break
    return [groups[group] for group in sorted(groups)]


async def unserved(reader: Reader, workers: Sequence[WorkerState]) -> list[Waiting]:
    """The newest hundred that wait for a function, or on a queue, that none of these workers has. Scans no others."""
    if any(worker.functions is None for worker in workers):
        return []
    names = {name for worker in workers for name in worker.functions or ()}
    if len(names) > MOST_NAMES:
        return await waiting(reader, most=MOST_DESCRIBED)
    clauses = [" AND ".join(f"WorkflowType != {quoted(name)}" for name in sorted(names))]
    queues = {queue for worker in workers for queue in worker.queues.split(",")}
    if "all" not in queues:
        clauses.append(" AND ".join(f"TaskQueue != {quoted(queue)}" for queue in sorted(queues)))
    either = " OR ".join(f"({clause})" for clause in clauses if clause)
    where = f" AND {ATTRIBUTE} IS NOT NULL" + (f" AND ({either})" if either else "")
    return await waiting(reader, where=where, most=MOST_DESCRIBED)


async def _is_ready(reader: Reader, seen: Seen) -> bool:
    """Is it due, and does the cluster hold a task for it that no worker has taken, or that one took and did not end?"""
    whole = await reader.describe(seen.info.execution.workflow_id, seen.info.execution.run_id)
    if whole is None or whole.details is None:
        return False
    due = (await reader.execution(whole)).run_at
    if due is not None and due > datetime.now(UTC):
        return False
    return whole.details.HasField("pending_workflow_task") or bool(whole.details.pending_activities)


async def history(reader: Reader, id: str) -> list[Seen]:
    """Every execution under an id, newest first: each knows the one before it."""
    found: list[Seen] = []
    seen = await reader.describe(id)
    while seen is not None and len(found) < MOST_FOLLOWED:
        found.append(seen)
        previous = seen.card.previous
        seen = None if previous is None else await reader.find(previous)
    return found


async def with_failed_messages(reader: Reader, most: int) -> list[str]:
    """The keys of entities that have messages which failed, at most so many, newest entity first."""
    found: list[str] = []
    async for seen in reader.query(f"ExecutionStatus = 'Running' AND {ATTRIBUTE} = {quoted(FAILED_MESSAGES)}"):
        found.append(seen.card.key or seen.id)
        if len(found) >= most:
            break
    return found


async def by_beginning(reader: Reader, id: str) -> Seen | None:
    """By the beginning of an execution's id, if only one begins so. A run's id alone is how other tools call it."""
    run, at, rest = id.partition("@")
    if not _RUN.fullmatch(run):
        return None
    clauses = [f"RunId STARTS_WITH {quoted(run)}"]
    if at and rest:
        clauses.append(f"WorkflowId STARTS_WITH {quoted(rest)}")
    found: dict[str, Seen] = {}
    async for seen in reader.query(" AND ".join(clauses)):
        found[seen.id] = seen
        if len(found) > 1:
            return None
    return await reader.find(next(iter(found))) if found else None


def aged(execution: Execution, now: datetime) -> Execution:
    """What is past its retention is not shown any more, though the cluster may still have it."""
    if execution.expires_at is None or now < execution.expires_at:
        return execution
    return replace(execution, error=None, expired=True)


def attributes(seen: Seen) -> dict[str, str]:
    """The search attributes of a workflow."""
    payload = seen.info.search_attributes.indexed_fields.get(ATTRIBUTE)
    return {} if payload is None else read(payload.data)
