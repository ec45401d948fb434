"""What a worker tells of the tasks whose endings it has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semel.contract.lifecycle import Status
from semel.define.context import Running
from semel.engines.journal.claiming import Claim
from semel.engines.journal.reading import get, load_error
from semel.engines.journal.settling import Ending
from semel.runtime.event_log import Success, log_successes

if TYPE_CHECKING:
    from semel.engines.journal.worker import JournalWorker

MOST_REPORTED = 100
"""Executions that are told of one by one when they fail because their workers died; the rest are in the database."""


def report_endings(
    worker: JournalWorker, final: list[Ending], again: list[Ending], given_up: list[Ending], refused: set[int]
) -> None:
    """Tell who listens what became of tasks, now that it is written. `refused` are tokens of claims that were lost."""
    events = worker.events
    if refused:
        for ending in (*final, *again, *given_up):
            if ending.claim.token in refused:
                events.lease_lost(_running(worker, ending.claim))
        final, again, given_up = (
            [e for e in endings if e.claim.token not in refused] for endings in (final, again, given_up)
        )
    if not events.observed:  # as a rule: then only the log wants to know of what ended well, if it does
        if events.wants_ends:
            log_successes(_success(e.claim, e) for e in final if e.error is None)
        final = [e for e in final if e.error is not None]
    for ending in final:
        error, about = load_error(ending.error), _running(worker, ending.claim)
        events.ended(about, ending.status, ending.seconds, error, ending.exception)
    for ending in given_up:
        events.ended(_running(worker, ending.claim), Status.FAILED, None, load_error(ending.error))
    for ending in again:
        error, about = load_error(ending.error), _running(worker, ending.claim)
        events.retried(about, ending.status, error, ending.retry_in or 0.0)


async def report_lost(worker: JournalWorker, ids: list[str]) -> None:
    """Tell who listens of executions that failed since the workers of their last attempts died."""
    for id_ in ids[:MOST_REPORTED]:
        found = await worker.store.run(get, worker.namespace, id_)
        if found is not None:  # else it belongs to another namespace of this database
            running = Running(
                found.id, found.key, found.name, found.kind, worker.namespace, found.queue, found.attempt,
                found.max_attempts, found.generation, 0,
            )  # fmt: skip
            worker.events.ended(running, found.status, None, found.error)


def _success(claim: Claim, ending: Ending) -> Success:
    return (
        claim.kind, claim.name, claim.key, claim.execution, claim.attempt, ending.status.value, ending.seconds
    )  # fmt: skip


def _running(worker: JournalWorker, claim: Claim) -> Running:
    return Running(
        claim.execution, claim.key, claim.name, claim.kind, worker.namespace, worker.intake.queue_of(claim.lane),
        claim.attempt, claim.max_attempts, claim.generation, claim.token,
    )  # fmt: skip
