"""What an execution looks like from outside: plain, frozen, the same on every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from semel.contract.decision import Reason
from semel.contract.lifecycle import Status


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An exception as data: never pickled, safe to show."""

    type: str
    message: str
    traceback: str = ""


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
    """When a delayed or retried one is due; None when it may run at once or has ended."""
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
    """The execution of the workflow that asked for it."""

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
class Explanation:
    """All that is known of a key: newest execution first, and what was suppressed."""

    key: str
    kind: str
    executions: tuple[Execution, ...]
    suppressed: tuple[Suppressed, ...]
    asked_at: datetime
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text
