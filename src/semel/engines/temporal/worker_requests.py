"""What a workflow asks its worker for: a start under a key that is taken, an end to wait for, a step, and the like."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct, field
from temporalio.common import RawValue

from semel.codec import decoder_of
from semel.contract.decision import Reuse
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.engines.temporal.arrivals import Moment
from semel.engines.temporal.payloads import unwrap
from semel.flow.entries import NOTHING, Resolved, stored
from semel.flow.turn import Ended

START: Final = "semel:start"
OUTCOME: Final = "semel:outcome"
CLOSE: Final = "semel:close"
ASKED: Final = "asked"
"""How an execution ends that a workflow asks to stop, whoever else wants it."""
FORK: Final = "semel:fork"
STEP: Final = "semel:step"
"""A local activity: it runs a step, and writes a row of the journal into history. One name for all of them, since
Temporal compares names when it replays, and Semel can say more of what differs."""
INHERIT: Final = "semel:inherit"


class ForkRequest(Struct, frozen=True):
    """What an heir asks for: the past of another run of its workflow, up to a row."""

    id: str
    run: str
    commit: int


class ActivityAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer."""

    id: str = ""
    status: str = Status.COMPLETED.value
    output: msgspec.Raw = NOTHING
    error: ErrorInfo | None = None
    refused: ErrorInfo | None = None
    begun: bool = False
    """Was it begun by whoever asked? Else it was there before."""

    def ended(self) -> Ended:
        """As an end."""
        return Ended(Status(self.status), stored(self.output), self.error)


class StepResult(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What a local activity leaves in history: the answer to a step, and the row of the journal that asked for it."""

    number: int = 0
    """Of the command; 0: there is only a row."""
    order: int = 0
    """The how-manieth step of its run to come to an end. Replayed, they would all end at once."""
    status: str = Status.COMPLETED.value
    output: msgspec.Raw = NOTHING
    error: ErrorInfo | None = None
    row: msgspec.Raw = NOTHING
    moments: dict[str, Moment] = field(default_factory=dict)
    """When things came, where that was asked for."""

    def resolved(self) -> Resolved:
        """As the code hears of it."""
        return Resolved(self.number, self.status, self.output, self.error)


def request_id_of(run: str, activity: str) -> str:
    """The id of a start that a workflow asks its worker for: the same however often the activity is tried."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run}/{activity}"))


read_fork_request: Final = decoder_of(ForkRequest).decode
read_made: Final = decoder_of(StepResult).decode
read_told: Final = decoder_of(ActivityAnswer).decode


def made_of(value: RawValue) -> StepResult:
    """The same from a payload."""
    return read_made(unwrap(value) or b"[]")


def told_of(value: RawValue) -> ActivityAnswer:
    """The answer in a payload."""
    return read_told(unwrap(value) or b"{}")


class Reservation(Struct, frozen=True):
    """What a run says of itself when it takes its key."""

    execution: str
    kind: str
    key: str
    name: str
    fingerprint: bytes
    retention: timedelta
    window: timedelta
    generation: int = 0
    previous: str | None = None
    """The execution that it was decided to follow; this one gives up the key without another question."""
    reuse: Reuse = Reuse.FAILED_ONLY
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 1
    input: bytes | None = None
    """Kept as long as the result, so that a conflict can name the fields that differ."""
    older: Callable[[], Iterable[bytes]] = tuple
    """Makes other fingerprints that stand for the same input."""


class Settlement(Struct, frozen=True):
    """How a run ended."""

    execution: str
    status: Status
    at: datetime
    output: bytes | None = None
    error: ErrorInfo | None = None
    attempt: int = 1
