"""Events as they are on record: what became of each, which activities ran for it, and why others did not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from semel.contract.runs import Why


class EventState(StrEnum):
    """What became of an event."""

    ROUTED = "routed"
    """At least one activity runs for it, or has taken it in to run later or with others."""
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
    """The activities that have a run for it, or have taken it in."""
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


class EventRun(msgspec.Struct, frozen=True):
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


class OutcomeState(StrEnum):
    """What became of an event for an activity that gathers or limits events, or is paused."""

    GATHERED = "gathered"
    """It waits with others, which run together."""
    QUEUED = "queued"
    """Its run waits: for its turn, or for the end of another run."""
    PAUSED = "paused"
    """The activity is paused: it runs after that."""
    STARTED = "started"
    """It has a run, by itself or with others."""
    DROPPED = "dropped"
    """It does not run; the reason says why. An operator can replay it."""
    CANCELS = "cancels"
    """It cancels runs of events that happened before it."""


@dataclass(frozen=True, slots=True)
class EventOutcome:
    """What became of an event for one activity that gathers or limits events, or is paused."""

    activity: str
    state: OutcomeState
    option: str | None = None
    """While it waits: the option of the activity that it waits for."""
    until: datetime | None = None
    """While it waits: when somebody looks again. What comes meanwhile may put that off."""
    run: str | None = None
    """The key of its run."""
    reason: str | None = None
    """Why it is dropped, or its run cancelled."""

    def __str__(self) -> str:
        told = f"{self.activity}: {self.state}"
        if self.reason is not None:
            told += f" ({self.reason})"
        elif self.run is not None:
            told += f" as {self.run}"
        elif self.option is not None and self.state is not OutcomeState.PAUSED:
            told += f" by {self.option}" + (f" until {self.until:%Y-%m-%d %H:%M:%S} UTC" if self.until else "")
        return told


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
    flow: tuple[str, ...] = ()
    """The options by which it gathers or limits events, or cancels runs."""
    paused_at: datetime | None = None
    """Since when it is paused: events that come are kept, and run after it."""
    note: str | None = None
    """What somebody said when pausing or resuming it."""
