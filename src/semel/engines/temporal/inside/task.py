"""A task that was asked for from outside, or under a key: a workflow of one activity."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from temporalio import workflow
from temporalio.common import RawValue

from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.temporal.inside.attempts import NOT_BEGUN, AttemptInfo, attempts
from semel.engines.temporal.inside.clock import Clock
from semel.engines.temporal.inside.events import report_lost
from semel.engines.temporal.inside.key_reservation import reserved, settled
from semel.engines.temporal.memo import ATTEMPT, DROPPED, MEMO, ExecutionMemo, from_memo
from semel.engines.temporal.names import execution_id
from semel.engines.temporal.payloads import conclude, unwrap
from semel.flow.turn import Ended
from semel.runtime.events import FromThreads


class TaskFlow:
    """One execution of a task: waits for its time, then for its attempts."""

    def __init__(self, lease: timedelta, events: FromThreads | None = None) -> None:
        self.clock = Clock()
        self._events = events
        self._lease = lease

    async def run(self, input: RawValue) -> RawValue:
        """Its result; raises what tells Temporal how else it ended."""
        card = card_of_this()
        info = workflow.info()
        id_ = execution_id(info.first_execution_run_id, info.workflow_id)

        def slip(attempt: int) -> AttemptInfo:
            return AttemptInfo(
                id_, card.name, card.key, attempt, card.max_attempts, card.generation, card.root, card.parent
            )

        data = unwrap(input) or b"{}"
        try:
            if card.ledger and (other := await reserved(card, id_, data)) is not None:
                return conclude(other)
            if card.due is not None:
                await self.clock.until(card.due)
            if is_overdue(card, self.clock):
                return conclude(drop())
            ended = await attempts(
                self.clock,
                card.name,
                info.task_queue,
                data,
                slip,
                max_attempts=card.max_attempts,
                lease=self._lease,
                priority=card.priority,
                tell=_tell,
                lost=partial(report_lost, self._events, info.task_queue),
                start_by=card.start_by,
            )
            if ended.error is not None and ended.error.type == NOT_BEGUN:
                ended = drop()
        except asyncio.CancelledError:
            ended = Ended(Status.CANCELLED)
        if card.ledger:
            await settled(id_, ended, self.clock.now())
        return conclude(ended)


def _tell(done: int, error: ErrorInfo | None, due: int) -> None:
    """Let `describe` show what a task waits for."""
    workflow.upsert_memo({ATTEMPT: [done, msgspec.to_builtins(error), due]})


def is_overdue(card: ExecutionMemo, clock: Clock) -> bool:
    """Whether it begins only now, after its start deadline."""
    return card.start_by is not None and clock.now() >= card.start_by


def drop() -> Ended:
    """End as a run that nobody began in time, and leave a note of it."""
    workflow.upsert_memo({DROPPED: True})
    return Ended(Status.CANCELLED)


def card_of_this() -> ExecutionMemo:
    """The card of the workflow that runs here; one that was started by other hands has few terms."""
    value: Any = workflow.memo_value(MEMO, None)
    found = from_memo(value)
    info = workflow.info()
    return found or ExecutionMemo("workflow", info.workflow_type, key=info.workflow_id)


def memo_of_this() -> dict[str, RawValue]:
    """The memo of the workflow that runs here, for its next run: as it is stored, since converting loses null."""
    return {name: RawValue(payload) for name, payload in workflow.info().raw_memo.items()}
