"""What a workflow asks its worker for: a start under a key that is taken, an end to wait for, a step, and the like."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct
from temporalio.common import RawValue

from semel.contract.decision import Reuse
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo
from semel.contract.times import micros, span
from semel.engine.protocol import Start, Terms
from semel.engines.temporal.payloads import unwrap
from semel.flow.entries import NOTHING, Resolved, raw, stored
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


class Ask(Struct, frozen=True, omit_defaults=True):
    """A start as plain data."""

    kind: str
    name: str
    queue: str
    key: str
    payload: msgspec.Raw
    fingerprint: str
    reuse: str
    priority: int
    max_attempts: int
    retention: int
    window: int
    parent: str
    now: int

    @classmethod
    def of(cls, start: Start, now: int, parent: str) -> Ask:
        """A start as a workflow asks for it."""
        terms = start.terms
        return cls(
            terms.kind, terms.name, terms.queue, start.key or "", raw(start.payload), start.fingerprint.hex(),
            terms.reuse.value, terms.priority, terms.max_attempts, micros(terms.retention), micros(terms.window),
            parent, now,
        )  # fmt: skip

    def start(self, id: str) -> Start:
        """The request again. `id` makes asking twice harmless."""
        terms = Terms(
            self.kind, self.name, self.queue, self.priority, Reuse(self.reuse), self.max_attempts,
            span(self.retention), span(self.window),
        )  # fmt: skip
        return Start(id, self.key, bytes(self.payload), bytes.fromhex(self.fingerprint), terms)


class Heirloom(Struct, frozen=True):
    """What an heir asks for: the past of another run of its workflow, up to a row."""

    id: str
    run: str
    commit: int


class Told(Struct, frozen=True, omit_defaults=True):
    """The answer."""

    id: str = ""
    status: str = Status.COMPLETED.value
    output: msgspec.Raw = NOTHING
    error: ErrorInfo | None = None
    refused: ErrorInfo | None = None

    def ended(self) -> Ended:
        """As an end."""
        return Ended(Status(self.status), stored(self.output), self.error)


class Made(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What a local activity leaves in history: the answer to a step, and the row of the journal that asked for it."""

    number: int = 0
    """Of the command; 0: there is only a row."""
    order: int = 0
    """The how-manieth step of its run to come to an end. Replayed, they would all end at once."""
    status: str = Status.COMPLETED.value
    output: msgspec.Raw = NOTHING
    error: ErrorInfo | None = None
    row: msgspec.Raw = NOTHING

    def resolved(self) -> Resolved:
        """As the code hears of it."""
        return Resolved(self.number, self.status, self.output, self.error)


def made_of(value: RawValue) -> Made:
    """The same from a payload."""
    return msgspec.json.decode(unwrap(value) or b"[]", type=Made)


def told_of(value: RawValue) -> Told:
    """The answer in a payload."""
    return msgspec.json.decode(unwrap(value) or b"{}", type=Told)
