"""Executions and explanations as users see them: plain, frozen, the same on every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from semel.contract.decision import Reason
from semel.contract.lifecycle import Status


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An exception as data: never pickled, safe to show."""

    type: str
    message: str
    traceback: str = ""
    root_type: str = ""
    """The type of the first exception in the chain of causes; empty if it is this one."""

    def __str__(self) -> str:
        """Type and message; a message that begins with the name of its type, as Semel's own do, stands alone."""
        name = self.type.rpartition(".")[2]
        if name and self.message.startswith(f"{name} ["):
            return self.message
        return ": ".join(filter(None, (self.type, self.message)))


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution, as it stood when it was read."""

    id: str
    kind: str
    name: str
    key: str | None
    queue: str
    priority: int
    status: Status
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime | None
    """When a delayed or retried execution is due; None if it may run at once or has ended."""
    started_at: datetime | None
    finished_at: datetime | None
    retention: timedelta
    window: timedelta
    generation: int
    previous_id: str | None
    """The execution under the same key that this one followed."""
    worker: str | None
    progress: str | None
    cancel_requested: bool
    error: ErrorInfo | None
    expired: bool
    """True when retention has dropped input and result and only the key is remembered."""
    parent_id: str | None = None
    """The execution of the workflow that started it."""
    stranded: bool = False
    """True if it was accepted and will never run, because the database has lost a part of it."""

    @property
    def expires_at(self) -> datetime | None:
        """When input and result are dropped; None while it is live."""
        return self.finished_at and self.finished_at + self.retention

    @property
    def window_ends_at(self) -> datetime | None:
        """When the key may run again; None while it is live, or without a key."""
        return self.finished_at + self.window if self.finished_at and self.key is not None else None


@dataclass(frozen=True, slots=True)
class Suppressed:
    """Duplicates of one execution that did not run, counted by reason."""

    execution_id: str
    reason: Reason
    count: int
    first_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True)
class MessageConflict:
    """A message or signal that was refused, because its key belongs to another one."""

    key: str
    held: str
    """The handler or signal that the key belongs to."""
    offered: str
    """The one that was refused."""
    fields: tuple[str, ...]
    """The arguments that differ; empty if the names differ, or if it is not known."""
    at: datetime

    def __str__(self) -> str:
        if self.held != self.offered:
            return f"key {self.key!r} belongs to {self.held!r}, and was used for {self.offered!r}"
        which = f" ({', '.join(self.fields)})" if self.fields else ""
        return f"key {self.key!r} was used again for {self.held!r} with different arguments{which}"


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message of an entity that failed and has not been sent again."""

    number: int
    """The number to redrive it by; never used twice in an entity."""
    handler: str
    dedup_key: str | None
    failed_at: datetime
    error: ErrorInfo
    arguments: dict[str, Any] | None
    """None: they were too large to keep, so the message cannot be redriven."""
    entity: str = field(default="", compare=False)
    """The key of the entity (`Class/id`), in what `failed_messages` gives."""

    def __str__(self) -> str:
        by = "" if self.dedup_key is None else f" with key {self.dedup_key!r}"
        kept = "" if self.arguments is not None else " (its arguments were too large to keep: send a new one)"
        return f"#{self.number} {self.handler!r}{by}, {self.failed_at:%Y-%m-%d %H:%M:%S} UTC: {self.error}{kept}"


@dataclass(frozen=True, slots=True)
class Undelivered:
    """Messages that a workflow or an entity did not accept: failed ones, newest first, and the last refused ones."""

    failed: tuple[FailedMessage, ...] = ()
    refused: tuple[MessageConflict, ...] = ()

    def lines(self, key: str) -> list[str]:
        """Describe them in words, one line each; empty if there are none."""
        lines = []
        if self.failed:
            lines += ["", f"Failed messages, which can be sent again with: semel entities redrive {key}"]
            lines += [f"  {message}" for message in self.failed]
        if self.refused:
            lines += ["", "Refused most recently:"]
            lines += [f"  {conflict.at:%Y-%m-%d %H:%M:%S} UTC: {conflict}." for conflict in self.refused]
        return lines


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything known about a key: its executions, newest first, and the suppressed duplicates."""

    key: str
    kind: str
    executions: tuple[Execution, ...]
    suppressed: tuple[Suppressed, ...] | None
    """None: how many duplicates there were is not known, since the engine has no place where they are counted."""
    asked_at: datetime
    text: str = field(default="", compare=False)
    undelivered: Undelivered = Undelivered()
    """Of an entity: messages that failed or were refused; of a workflow: the last signal that was refused."""
    other_kinds: tuple[str, ...] = ()
    """Kinds that have an execution under this key too, when no kind was asked for."""

    def __str__(self) -> str:
        return self.text
