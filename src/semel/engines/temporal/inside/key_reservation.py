"""Keys that are remembered for longer than the cluster remembers: a run takes its key in the records database before it
does anything, and writes down how it ended before the cluster hears of it. See ADR 23."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct
from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

from semel.codec import Shape, decoder_of
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.contract.times import from_micros
from semel.engines.temporal.inside.attempts import FOR_EVER
from semel.engines.temporal.memo import ExecutionMemo
from semel.engines.temporal.payloads import wrap
from semel.engines.temporal.worker_requests import ActivityAnswer, Reservation, Settlement, told_of
from semel.flow.entries import raw, stored
from semel.flow.turn import Ended

RESERVE: Final = "semel:reserve"
SETTLE: Final = "semel:settle"
PATIENT: Final = RetryPolicy(maximum_interval=timedelta(seconds=30))
"""While the database is away the run waits."""
ONE_TRY: Final = timedelta(minutes=5)


class Taking(Struct, frozen=True):
    """A run that wants its key."""

    execution: str
    queue: str
    card: ExecutionMemo
    input: msgspec.Raw

    def reservation(self, shape: Shape | None) -> Reservation:
        """As the ledger takes it. With the `shape` of its function, older forms of its input are known as well."""
        card, input = self.card, stored(self.input)
        older = tuple if shape is None or input is None else partial(shape.older_fingerprints, card.name, input)
        return Reservation(
            self.execution,
            card.kind,
            card.key or "",
            card.name,
            bytes.fromhex(card.fingerprint),
            card.kept,
            card.held,
            card.generation,
            card.previous,
            queue=self.queue,
            priority=card.priority,
            max_attempts=card.max_attempts,
            input=input,
            older=older,
        )


class Ending(Struct, frozen=True):
    """A run that has ended."""

    execution: str
    status: str
    at: int
    output: msgspec.Raw
    error: ErrorInfo | None = None

    def settlement(self) -> Settlement:
        """As the ledger takes it."""
        return Settlement(self.execution, Status(self.status), from_micros(self.at), stored(self.output), self.error)


read_taking: Final = decoder_of(Taking).decode
read_ending: Final = decoder_of(Ending).decode


async def reserved(card: ExecutionMemo, id: str, input: bytes) -> Ended | None:
    """Take the key of this run; None: it may go on. Else how the one ended that holds it: the run takes that over."""
    taken = told_of(await _ask(RESERVE, Taking(id, workflow.info().task_queue, card, raw(input))))
    return None if taken.id == id else taken.ended()


async def settled(id: str, ended: Ended, now: int) -> None:
    """Write down how this run ended."""
    await _ask(SETTLE, Ending(id, ended.status.value, now, raw(ended.output), ended.error))


async def _ask(name: str, ask: Any) -> RawValue:
    found: RawValue = await workflow.execute_activity(
        name,
        wrap(msgspec.json.encode(ask)),
        result_type=RawValue,
        start_to_close_timeout=ONE_TRY,
        schedule_to_close_timeout=FOR_EVER,
        retry_policy=PATIENT,
    )
    return found


def held_by(id: str, status: Status, output: bytes | None, error: ErrorInfo | None) -> bytes:
    """The answer to who wants a key: the holder, and how it ended."""
    return msgspec.json.encode(ActivityAnswer(id, status.value, raw(output), error))
