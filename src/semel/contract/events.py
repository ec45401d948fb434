"""Events as they are on record: what became of each, which activities ran for it, and why others did not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from semel.contract.runs import Why


class EventState(StrEnum):
    """What became of an event."""

    ROUTED = "routed"
    """At least one activity runs for it."""
    UNMATCHED = "unmatched"
    """No activity wanted it. It is kept, so that one that is added later can be run for it."""
    WAITING = "waiting"
    """It is to be delivered later."""
    PARKED = "parked"
    """It could not be routed; `problem` says why. An operator can replay it."""


@dataclass(frozen=True, slots=True)
class EventInfo:
    """An event, as it stood when it was read."""

    event_id: str
    """As it stands in the ids of its runs: a long one by its hash."""
    type: str
    source: str
    state: EventState
    activities: tuple[str, ...]
    """The activities that have a run for it."""
    problem: str | None
    """Why it is parked, or which filters could not be evaluated."""
    future: bool
    """When it came, it was dated later than that."""
    received_at: datetime
    deliver_at: datetime | None
    """When it is, or was, to be delivered, if that was later than it came."""
    duplicates: int
    """Deliveries after the first one, which did not count."""
    last_duplicate_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventRun:
    """The newest run of an activity for an event, as it is on record."""

    activity: str
    key: str
    execution: str
    """Its execution: `app.get(…)` has the rest."""
    why: Why
    version: int
    """The version of the subscription that it began with."""
    generation: int
    """How often it was run again."""
    created_at: datetime
    name: str = ""
    """The task or workflow that it runs, as far as that is known."""
    started: bool = True
    """False: it is on record, and not yet started on the cluster; `execution` is the id that it will have there."""


class MatchKind(StrEnum):
    """How an activity stands to an event."""

    MATCHES = "matches"
    OTHER_TYPE = "other type"
    OTHER_SOURCE = "other source"
    FILTERED = "filtered out"
    """Its filter is false for the event."""
    PROBLEM = "filter failed"
    """Its filter could not be evaluated, so it does not match."""


@dataclass(frozen=True, slots=True)
class EventMatch:
    """Whether an activity wants an event, by its definition of today, and why."""

    activity: str
    kind: MatchKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.activity}: {self.kind}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """An activity that wants events, as it stood when it was read."""

    id: str
    kind: str
    name: str
    """The task or workflow that it runs."""
    queue: str
    types: tuple[str, ...]
    """The types of events that it wants."""
    version: int
    owner: str
    """Who declared it: code, file or api."""
    created_at: datetime
    changed_at: datetime
