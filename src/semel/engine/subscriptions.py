"""Activities that want events, as engines keep them, and what engines can do with events."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.contract.event_flow import Batch, Debounce, Singleton, StartLimit
from semel.contract.events import EventInfo, EventMatch, EventOutcome, EventRun, EventState, SubscriptionInfo
from semel.engine.schedules import Owner
from semel.engine.start_request import RunOptions
from semel.errors import NotDecodable, phrase

if TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope

FORMAT: Final = 1
"""Of a stored definition. A reader refuses a newer one instead of losing what it does not know."""


class EventPattern(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which events one trigger wants."""

    types: tuple[str, ...]
    source: str | None = None
    where: str | None = None


class FlowOptions(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How an activity gathers or limits events."""

    debounce: Debounce | None = None
    batch: Batch | None = None
    singleton: Singleton | None = None
    throttle: StartLimit | None = None
    rate_limit: StartLimit | None = None
    cancel_on: EventPattern | None = None
    keys: dict[str, str] = {}
    """Which part of an event each option goes by, as an expression; without one, all events go together."""

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options."""
        return tuple(name for name in self.__struct_fields__ if name != "keys" and getattr(self, name) is not None)

    @property
    def gather(self) -> Literal["debounce", "batch"] | None:
        """The option by which events are gathered for one run."""
        return "debounce" if self.debounce is not None else "batch" if self.batch is not None else None

    @property
    def limit(self) -> Literal["singleton", "throttle", "rate_limit"] | None:
        """The option that decides when a run may start."""
        if self.singleton is not None:
            return "singleton"
        return "throttle" if self.throttle is not None else "rate_limit" if self.rate_limit is not None else None


class SubscriptionDefinition(Struct, frozen=True):
    """Which events an activity wants, and what it runs for each."""

    patterns: tuple[EventPattern, ...]
    """An event that one of them matches is run for, once."""
    options: RunOptions
    payload: bytes
    """The arguments of its function, as canonical JSON."""
    event_parameter: str | None = None
    """The parameter of its function that gets the event."""
    run_parameter: str | None = None
    """The parameter of its function that gets the Run."""
    concurrency_key: str | None = None
    events_parameter: str | None = None
    """The parameter of its function that gets the list of all events of a run."""
    flow: FlowOptions | None = None

    def to_bytes(self) -> bytes:
        """JSON that is the same for the same definition."""
        return msgspec.json.encode(
            _Stored(
                FORMAT,
                self.patterns,
                self.options,
                Raw(self.payload),
                self.event_parameter,
                self.run_parameter,
                self.concurrency_key,
                self.events_parameter,
                self.flow,
            )
        )

    @staticmethod
    def from_bytes(data: bytes, id: str) -> SubscriptionDefinition:
        """The definition of a subscription. NotDecodable: a newer release has written it."""
        try:
            return _definition(bytes(data))
        except msgspec.MsgspecError as error:
            raise NotDecodable(
                f"what activity {id!r} runs for events cannot be read ({phrase(error)}): it was made by a newer "
                "release. Publish events with that release."
            ) from error


class _Stored(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON of a definition; a field that is added needs a default."""

    format: int
    patterns: tuple[EventPattern, ...]
    options: RunOptions
    payload: Raw
    event_parameter: str | None = None
    run_parameter: str | None = None
    concurrency_key: str | None = None
    events_parameter: str | None = None
    flow: FlowOptions | None = None


_read: Final = decoder_of(_Stored).decode


@lru_cache(maxsize=10_000)
def _definition(data: bytes) -> SubscriptionDefinition:
    found = _read(data)
    return SubscriptionDefinition(
        found.patterns,
        found.options,
        bytes(found.payload),
        found.event_parameter,
        found.run_parameter,
        found.concurrency_key,
        found.events_parameter,
        found.flow,
    )


class SubscriptionRow(NamedTuple):
    """A subscription as the tables hold it; times in microseconds."""

    id: str
    version: int
    owner: Owner
    definition: bytes
    created_at: int
    changed_at: int
    paused_at: int | None = None
    note: str | None = None


class Publication(Struct, frozen=True):
    """An event that somebody publishes, checked and encoded."""

    event: EventEnvelope
    id: str
    """Its id as it stands in the ids of its runs."""
    envelope: bytes
    fingerprint: bytes
    delivery: int
    """A random number, so that this very delivery is known again after a lost reply."""
    published_at: datetime
    deliver_at: datetime | None = None
    max_future: timedelta | None = None
    """Dated further in the future than this, it is parked."""
    runs_after_failure: bool = False
    """Its source wants that a delivery after a failure runs again."""
    counts_for: timedelta | None = None
    """Its id was made from its content, which another event may have, too: so long after it came, a delivery is a new
    event."""


class Receipt(NamedTuple):
    """The answer to a publication; when it is given, the event is committed."""

    id: str
    duplicate: bool
    state: EventState
    runs: tuple[EventRun, ...]
    problem: str | None
    outcomes: tuple[EventOutcome, ...] = ()
    """Of activities that gather or limit events, or are paused."""


class EngineEvents(Protocol):
    """What an engine can do with events."""

    def publish(self, publication: Publication) -> Awaitable[Receipt]:
        """Record an event and start its runs, within the time limit of calls.

        KeyConflict: its id stands for another event.
        """

    async def publish_many(self, publications: Sequence[Publication]) -> list[Receipt | BaseException]:
        """Many at once; an error goes with its event alone."""

    async def get(self, id: str) -> tuple[EventInfo, EventEnvelope] | None:
        """An event."""

    async def page(self, state: EventState | None, type: str | None, before: str | None, limit: int) -> list[EventInfo]:
        """Events, newest first."""

    async def runs(self, id: str, event: EventEnvelope, activities: Sequence[str]) -> list[EventRun]:
        """The newest run of each of these activities for an event, by itself or with others."""

    async def events_of_run(self, key: str) -> list[str]:
        """The ids of the events that a run has gathered, oldest first, by its key."""

    async def outcomes(self, id: str) -> list[EventOutcome]:
        """What became of an event for each activity that gathers or limits events, or is paused."""

    async def matches(self, event: EventEnvelope) -> list[EventMatch]:
        """For each activity, whether it wants an event, and why not."""

    async def replay(self, id: str, activities: Sequence[str] | None, *, completed: bool) -> Receipt | None:
        """Route a parked event again, or run activities again whose newest run for it has ended.

        `activities`: of these only. Runs that completed are run again only if `completed`. None: there is no such
        event.
        """

    async def backfill(
        self, activity: str, since: datetime | None, until: datetime | None, limit: int, *, write: bool
    ) -> list[str]:
        """Run an activity for kept events that it wants and has no run for, oldest first; their ids."""

    async def count_parked(self) -> int:
        """How many events are parked, counted up to 1,000."""

    async def pause(self, activity: str, note: str | None) -> bool:
        """Keep events for an activity back. False: there is no such activity."""

    async def resume(self, activity: str, note: str | None) -> bool:
        """Run an activity for what came meanwhile, oldest first, and for what comes. False: there is none such."""

    async def subscription(self, id: str) -> SubscriptionDefinition | None:
        """What an activity runs for events."""

    async def subscriptions(self, after: str, limit: int) -> list[SubscriptionInfo]:
        """Activities that want events, by their ids."""
