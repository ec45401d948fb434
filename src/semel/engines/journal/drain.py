"""Tasks that a transaction of the caller's holds, claimed, run and settled on its own connection. For tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from semel.contract.lifecycle import Status
from semel.define.registry import Registry
from semel.define.task import Task
from semel.engines.journal.caller_transaction import CallerTransaction, TransactionVerbs
from semel.engines.journal.claims import Claim, claim, load_lanes, random_number
from semel.engines.journal.leases import register, retire
from semel.engines.journal.settle import ending_of, settle
from semel.runtime.attempt import AttemptOutcome, run_attempt
from semel.runtime.threads import Threads

LEASE: Final = 3_600_000_000
"""Microseconds: nobody else sees the lease, and it ends with the drain."""
AT_ONCE: Final = 20
NAME: Final = "a test"


async def run_tasks(
    verbs: TransactionVerbs, registry: Registry, limit: int, threads: Callable[[], Threads]
) -> AsyncGenerator[tuple[Claim, AttemptOutcome], None]:
    """Run all tasks that are ready, also those which they start, one after the other; what became of each.

    `limit`: bytes of a result. An attempt that fails is followed by the next one at once.
    """
    transaction, namespace = verbs.transaction, verbs.namespace
    names = [one.name for one in registry if isinstance(one, Task)]
    worker = await transaction.run(register, random_number(), namespace, NAME, "all", LEASE)
    try:
        while claims := await _claim(transaction, namespace, worker, names):
            for one in claims:
                queue = (await _queues(transaction, namespace)).get(one.lane, "")
                ran = await _run(registry.task(one.name), one, namespace, queue, limit, threads)
                await transaction.run(settle, worker, [ending_of(one, ran, None)])
                yield one, ran
    finally:
        await transaction.run(retire, worker, NAME)


async def _queues(transaction: CallerTransaction, namespace: str) -> dict[int, str]:
    lanes, _ = await transaction.run(load_lanes, namespace, None)
    return {row[0]: row[1] for row in lanes}


async def _claim(transaction: CallerTransaction, namespace: str, worker: int, names: list[str]) -> list[Claim]:
    lanes = [*await _queues(transaction, namespace)]
    if not lanes or not names:
        return []
    return await transaction.run(claim, worker, lanes, [0] * len(lanes), names, AT_ONCE)


async def _run(
    task: Task[..., Any], one: Claim, namespace: str, queue: str, limit: int, threads: Callable[[], Threads]
) -> AttemptOutcome:
    running = one.context(namespace, queue, lambda _: None)
    if running.cancelled:
        return AttemptOutcome(Status.CANCELLED)
    while True:
        # In a task of its own: what the attempt sets in its context is not there afterwards.
        ran = await asyncio.create_task(run_attempt(task, one.input, running, threads, limit))
        if ran.retry_in is None:
            return ran
        running.attempt += 1
