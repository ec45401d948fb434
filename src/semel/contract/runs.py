"""A run for a slot of a schedule or for an event, as the function that is run sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from semel.contract.slot_policy import SkipReason


class Why(StrEnum):
    """What a run was started for."""

    SLOT = "slot"
    """A slot of its schedule, on time."""
    CATCHUP = "catchup"
    """A slot that was missed and is caught up."""
    COMPRESS = "compress"
    """Several slots that were missed, in one run."""
    MANUAL = "manual"
    """Somebody triggered it by hand."""
    BACKFILL = "backfill"
    """Somebody asked for slots or events of the past."""
    EVENT = "event"
    """An event."""
    REPLAY = "replay"
    """An event that somebody replays, or that was delivered again after its run failed."""


@dataclass(frozen=True, slots=True)
class RunWindow:
    """The time that a run is about: after `start`, up to and including `end`. Windows of a schedule tile."""

    start: datetime | None
    """The slot before; None: there was none, or the run was triggered by hand."""
    end: datetime
    slots: int = 1
    """The number of slots in the window."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a schedule, or of an activity for an event.

    A task or workflow with a parameter of this type is given its own.

    It is stored with the input, so every attempt and every replay sees the same; nothing in it is read from a clock.
    """

    schedule: str
    """The id of the schedule, or of the activity that runs for an event."""
    key: str
    """The key of the execution: `activity-{schedule}:{scheduled_for}`, or `activity-{schedule}:{event_id}`."""
    scheduled_for: datetime
    """The slot, in UTC; of a run that was triggered by hand, when that was; of an event, its time."""
    window: RunWindow
    why: Why = Why.SLOT
    version: int = 1
    """The version of the schedule's definition that it began with."""
    previous_result: Any = None
    """What the newest run before it that completed gave, as plain JSON data, while that is kept and if it
    fits beside the other arguments."""
    next_slots: tuple[datetime, ...] = ()
    """The slots that follow, as the definition had them when it began."""
    generation: int = 0
    """How often this slot has had a run before: more than 0 only if an operator runs it again."""
    event_id: str | None = None
    """The event that it runs for."""


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """A run of a schedule, as it is on record."""

    schedule: str
    key: str
    execution: str
    """Its execution: `app.get(…)` has the rest."""
    scheduled_for: datetime
    why: Why
    version: int
    """The version of the definition that it began with."""
    window_start: datetime | None
    slots: int
    created_at: datetime
    generation: int = 0
    """How often an operator has run this slot again before."""


@dataclass(frozen=True, slots=True)
class SkippedSlots:
    """Slots of a schedule that did not run, for one reason, all in one range."""

    schedule: str
    reason: SkipReason
    first: datetime
    last: datetime
    count: int
    into: datetime | None = None
    """The slot whose run covers them, where they are compressed."""

    def __str__(self) -> str:
        if self.count == 1:
            when = f"{self.first:%Y-%m-%d %H:%M:%S} UTC"
        else:
            when = f"{self.count} slots from {self.first:%Y-%m-%d %H:%M:%S} to {self.last:%Y-%m-%d %H:%M:%S} UTC"
        into = "" if self.into is None else f" into {self.into:%Y-%m-%d %H:%M:%S}"
        return f"{when}: {self.reason}{into}"


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, as it stood when it was read."""

    id: str
    kind: str
    name: str
    """The task or workflow that it runs."""
    queue: str
    when: str
    """Its timing in words."""
    timezone: str
    misfire: str
    overlap: str
    version: int
    owner: str
    """Who declared it: code, file or api."""
    cursor: datetime
    """The newest slot that is covered: at or before it none fires any more."""
    next_slot: datetime | None
    """The next slot; None while it is paused, and when there are no more."""
    paused_at: datetime | None
    note: str | None
    """What somebody said when pausing or resuming it."""
    running: tuple[str, ...]
    """Executions that had not ended when it was read."""
    waiting: tuple[datetime, ...]
    """Slots that wait for a run to end."""
    failures: int
    """Runs that failed one after the other, as far as they were noticed."""
    created_at: datetime
    changed_at: datetime


class ChangeKind(StrEnum):
    """What applying a declaration does to a schedule or a subscription."""

    CREATE = "create"
    CHANGE = "change"
    KEEP = "keep"
    DELETE = "delete"
    ORPHAN = "orphan"
    """It is not declared any more, and stays until it is pruned."""
    FOREIGN = "foreign"
    """Somebody else owns it, and it differs: it stays as it is."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the plan of an apply."""

    kind: ChangeKind
    id: str
    detail: str = ""
    what: Literal["schedule", "event"] = "schedule"
    """Whether it is about a schedule or about an activity that runs for events."""

    def __str__(self) -> str:
        return f"{self.kind} {self.id}" + (f": {self.detail}" if self.detail else "")
