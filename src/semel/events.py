"""Events of an app: what wants them, declared in code; publishing them; and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypedDict, TypeVar, Unpack, cast

import msgspec

from semel.backfills import refuse_in_run
from semel.contract.durations import Duration
from semel.contract.events import EventInfo, EventMatch, EventOutcome, EventRun, EventState, SubscriptionInfo
from semel.contract.keys import check_key, check_text
from semel.define.task import Task
from semel.define.workflow import Workflow
from semel.engine.declarations import Declared
from semel.engine.publications import make_publication
from semel.engine.subscriptions import EngineEvents, Receipt, SubscriptionDefinition
from semel.errors import ConfigError, DefinitionError, InvalidValue, NotFound
from semel.handle import Handle
from semel.triggers.ids import EVENT_ID_LENGTH, check_activity_id, event_part, event_run_id, parse_event_run_id

if TYPE_CHECKING:
    from semel.app import App
    from semel.triggers.cloudevents import IncomingEvent
    from semel.triggers.envelope import EventEnvelope
    from semel.triggers.event_source import EventSource
    from semel.triggers.flow_options import (
        BatchConfig,
        CancelOnConfig,
        DebounceConfig,
        RateLimitConfig,
        SingletonConfig,
        ThrottleConfig,
    )
    from semel.triggers.models import EventTriggerConfig

AnyEvent: TypeAlias = "EventEnvelope | IncomingEvent"
H = TypeVar("H")
H_co = TypeVar("H_co", covariant=True)
F = TypeVar("F", bound=Callable[..., Any])
PAGE = 200
GATHERED_SHOWN = 10


class PublishOptions(TypedDict, total=False):
    """The options of `app.publish` and `app.publish_many`."""

    source: EventSource | None
    """Rules for where the events come from."""
    deliver_at: datetime | None
    """When they are to be delivered. Without it: at once."""
    connection: Any
    """A connection of yours with an open transaction: the event is there when you commit, and never was otherwise."""


class Published(msgspec.Struct, Generic[H_co], frozen=True):
    """The answer to a publication. When it is there, the event and the runs that it starts are committed."""

    event_id: str
    """As it stands in the ids of its runs: a long one by its hash."""
    duplicate: bool
    """It had been delivered before: this delivery was counted, and nothing else."""
    state: EventState
    runs: tuple[H_co, ...]
    """A handle to the run of each activity that wants it; of a duplicate, the runs of the first delivery."""
    problem: str | None = None
    """Why it is parked, or which filters could not be evaluated."""
    run_again: str | None = None
    """Of a duplicate: the command that runs it again."""
    outcomes: tuple[EventOutcome, ...] = ()
    """What became of it for each activity that gathers or limits events, or is paused."""

    def with_runs(self, runs: tuple[H, ...]) -> Published[H]:
        """The same answer with other handles."""
        return Published(self.event_id, self.duplicate, self.state, runs, self.problem, self.run_again, self.outcomes)


@dataclass(frozen=True, slots=True)
class EventPage:
    """Everything known of an event."""

    info: EventInfo
    event: EventEnvelope
    runs: tuple[EventRun, ...]
    matches: tuple[EventMatch, ...]
    """For each activity of today, whether it wants the event, and why not."""
    outcomes: tuple[EventOutcome, ...] = ()
    """What became of it for each activity that gathers or limits events, or is paused."""


@dataclass(frozen=True, slots=True)
class _Declaration:
    function: Task[..., Any] | Workflow[..., Any]
    trigger: EventTriggerConfig
    reuse: str
    queue: str | None
    priority: int | None


class Events:
    """The events of an app: `app.events`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, _Declaration] = {}

    # Declarations.

    def declare(self, id: str | None, one: _Declaration) -> None:
        """Remember an activity that wants events; `apply` publishes it."""
        if not isinstance(one.function, Task | Workflow):
            raise DefinitionError(
                f"{one.function!r} is neither a task nor a workflow: put @app.on_event(…) above @app.task or "
                "@app.workflow."
            )
        id = check_activity_id(one.function.name if id is None else id)
        if ":" in id:
            raise DefinitionError(
                f"{id!r} has a ':' in it, which the id of an activity that runs for events cannot have: give id='…'."
            )
        if id in self._declared or id in self._app.schedules.activities:
            raise DefinitionError(f"two activities for events are called {id!r}: give one of them id='…'.")
        self._define(one)  # what is wrong is told where it stands
        self._declared[id] = one

    def _define(self, one: _Declaration) -> SubscriptionDefinition:
        from semel.engine.subscription_definitions import define_subscription

        return define_subscription(
            self._app.settings,
            one.function,
            [one.trigger],
            arguments={},
            queue=one.queue,
            priority=one.priority,
            reuse=one.reuse,
        )

    @property
    def declared(self) -> list[str]:
        """The ids of the activities that `@app.on_event` declares."""
        return [*self._declared]

    def definitions(self) -> list[Declared]:
        """What `@app.on_event` declares, as it is stored."""
        return [Declared(id, "code", self._define(one)) for id, one in self._declared.items()]

    async def definition(self, id: str) -> SubscriptionDefinition | None:
        """What an activity runs for events, as it is stored."""
        return await (await self._engine()).subscription(id)

    async def subscriptions(self) -> Sequence[SubscriptionInfo]:
        """All activities that want events, by their ids."""
        engine = await self._engine()
        found = await engine.subscriptions("", PAGE)
        every = found
        while len(found) == PAGE:
            found = await engine.subscriptions(every[-1].id, PAGE)
            every = every + found
        return every

    # Publishing.

    async def publish(
        self,
        event: AnyEvent,
        *,
        source: EventSource | None = None,
        deliver_at: datetime | None = None,
        connection: Any = None,
    ) -> Published[Handle[Any]]:
        """See `app.publish`."""
        publication = make_publication(self._app.settings, event, source, deliver_at, datetime.now(UTC))
        connection = self._app._connection(connection, "publish")
        if connection is None:
            return self._published(await (await self._engine()).publish(publication))
        receipt = await (await self._app._joined(connection)).publish(publication)
        return self._published(receipt, uncommitted=True)

    async def publish_many(
        self,
        events: Iterable[AnyEvent],
        *,
        source: EventSource | None = None,
        deliver_at: datetime | None = None,
        connection: Any = None,
    ) -> Sequence[Published[Handle[Any]]]:
        """See `app.publish_many`."""
        now, settings = datetime.now(UTC), self._app.settings
        publications = [make_publication(settings, event, source, deliver_at, now) for event in events]
        connection = self._app._connection(connection, "publish_many")
        if connection is not None:
            verbs = await self._app._joined(connection)
            return [self._published(await verbs.publish(one), uncommitted=True) for one in publications]
        receipts = await (await self._engine()).publish_many(publications) if publications else []
        for receipt in receipts:
            if isinstance(receipt, BaseException):
                raise receipt
        return [self._published(cast(Receipt, receipt)) for receipt in receipts]

    def _published(self, receipt: Receipt, *, uncommitted: bool = False) -> Published[Handle[Any]]:
        runs: tuple[Handle[Any], ...] = tuple(
            [
                Handle(self._app, run.execution, run.name, run.key, receipt.duplicate, uncommitted)
                for run in receipt.runs
            ]
        )
        again = f"semel events replay {receipt.id}" if receipt.duplicate else None
        return Published(receipt.id, receipt.duplicate, receipt.state, runs, receipt.problem, again, receipt.outcomes)

    # Looking and acting.

    async def list(
        self,
        *,
        state: EventState | str | None = None,
        type: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[EventInfo]:
        """Events, newest first; for the next page pass the last `event_id` as `before`."""
        if not 1 <= limit <= 1000:
            raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to 1000, and page with before=….")
        try:
            wanted = None if state is None else EventState(state)
        except ValueError:
            raise InvalidValue(f"state={state!r}: there are {', '.join(EventState)}.") from None
        return await (await self._engine()).page(wanted, type, before, limit)

    async def get(self, event_id: str) -> EventPage:
        """An event, its runs, and for each activity why it matches or not. NotFound if there is none."""
        engine = await self._engine()
        info, event = await self._find(event_id)
        runs, matches = await engine.runs(info.event_id, event, info.activities), await engine.matches(event)
        outcomes = await engine.outcomes(info.event_id) if info.activities else ()
        return EventPage(info, event, tuple(runs), tuple(matches), tuple(outcomes))

    async def _find(self, event_id: str) -> tuple[EventInfo, EventEnvelope]:
        engine = await self._engine()
        for key in _event_keys(event_id):
            if (found := await engine.get(key)) is not None:
                return found
        raise _missing(event_id)

    async def replay(
        self, event_id: str, *, activities: Sequence[str] | None = None, completed: bool = False
    ) -> Published[Handle[Any]]:
        """Route a parked event again, or run again what failed for it, as the next generation.

        `activities`: of these only. `completed`: also those whose run completed. What still runs is left alone, as
        is what waits in a window or behind a limit. An event that waits for its delivery, or for an activity that is
        paused, runs now.
        """
        chosen = None if activities is None else [check_activity_id(one) for one in activities]
        info, _ = await self._find(event_id)
        receipt = await (await self._engine()).replay(info.event_id, chosen, completed=completed)
        if receipt is None:
            raise _missing(event_id)
        return self._published(receipt)

    async def backfill(
        self,
        activity: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 10_000,
        dry_run: bool = False,
    ) -> Sequence[str]:
        """Run an activity for kept events that it wants and has no run for, oldest first; the ids of the events."""
        for name, at in (("since", since), ("until", until)):
            if at is not None and at.utcoffset() is None:
                raise InvalidValue(f"{name}={at!s} has no time zone: give an aware datetime.")
        if limit < 1:
            raise InvalidValue(f"limit={limit!r}: give a whole number, 1 or more.")
        engine = await self._engine()
        return await engine.backfill(check_activity_id(activity), since, until, limit, write=not dry_run)

    async def pause(self, activity: str, note: str | None = None) -> None:
        """Keep events for an activity back until it is resumed. What runs goes on. NotFound if there is none such."""
        refuse_in_run("events.pause()")
        note = None if note is None else check_text(note, "note")
        if not await (await self._engine()).pause(check_activity_id(activity), note):
            raise _unsubscribed(activity)

    async def resume(self, activity: str, note: str | None = None) -> None:
        """Run an activity for events that came while it was paused, oldest first, and for those that come."""
        refuse_in_run("events.resume()")
        note = None if note is None else check_text(note, "note")
        if not await (await self._engine()).resume(check_activity_id(activity), note):
            raise _unsubscribed(activity)

    async def explain_run(self, key: str) -> str:
        """What is known of the event of a run, in words, by the key of the run; empty if there is nothing to say."""
        parsed = parse_event_run_id(key)
        if parsed is None:
            return ""
        try:
            engine = await self._engine()
        except ConfigError:  # a cluster without records has no events
            return ""
        if gathered := await engine.events_of_run(key):
            more = f" and {len(gathered) - GATHERED_SHOWN} more" if len(gathered) > GATHERED_SHOWN else ""
            shown = ", ".join(gathered[:GATHERED_SHOWN])
            if len(gathered) > 1 or key != event_run_id(parsed[0], gathered[0]):
                return f"Run of activity {parsed[0]!r} for {len(gathered)} gathered events: {shown}{more}."
        found = await engine.get(parsed[1])
        if found is None or parsed[0] not in found[0].activities:
            return ""
        info = found[0]
        outcome = next((one for one in await engine.outcomes(info.event_id) if one.activity == parsed[0]), None)
        if outcome is not None and outcome.run is None:
            return f"Event {info.event_id!r} ({info.type} from {info.source}) has no run of its own: {outcome}."
        text = f"Run of activity {parsed[0]!r} for event {info.event_id!r} ({info.type} from {info.source})."
        if info.duplicates and info.last_duplicate_at is not None:
            times = "once" if info.duplicates == 1 else f"{info.duplicates} times"
            text += (
                f" It was delivered {times} more, the last at {info.last_duplicate_at:%Y-%m-%d %H:%M:%S} UTC: these "
                f"did not run. Run it again with: semel events replay {info.event_id}"
            )
        return text

    async def _engine(self) -> EngineEvents:
        return await self._app.engine.events()


class Publishing:
    """The part of an app that is about events."""

    @cached_property
    def events(self) -> Events:
        """The events of this app."""
        return Events(cast("App", self))

    def on_event(
        self,
        *types: str,
        source: str | None = None,
        where: str | None = None,
        id: str | None = None,
        reuse: Literal["reject", "failed_only"] = "reject",
        queue: str | None = None,
        priority: int | None = None,
        debounce: Duration | Mapping[str, Any] | DebounceConfig | None = None,
        batch: Mapping[str, Any] | BatchConfig | None = None,
        singleton: Literal["skip", "cancel"] | Mapping[str, Any] | SingletonConfig | None = None,
        throttle: str | Mapping[str, Any] | ThrottleConfig | None = None,
        rate_limit: str | Mapping[str, Any] | RateLimitConfig | None = None,
        cancel_on: str | Sequence[str] | Mapping[str, Any] | CancelOnConfig | None = None,
    ) -> Callable[[F], F]:
        """Run a task or a workflow once for each event that matches: `@app.on_event("invoice.paid")`.

        It stands above `@app.task` or `@app.workflow`. The function has no parameters but those with defaults and, if
        it wants them, one of type `semel.EventEnvelope` and one of type `semel.Run`. In types and source `*` stands for
        any characters; `where` is an expression in CEL, such as `data.cents > 0`. With `reuse="failed_only"` an event
        that is delivered again after its run failed runs again. `debounce` and `batch` gather events for one run, which
        gets all of them by a parameter of type `list[semel.EventEnvelope]`, and the newest by one of type
        `semel.EventEnvelope`; `singleton`, `throttle` and `rate_limit` limit runs. Nothing runs before `apply()`
        has published it.
        """
        if not types or any(callable(one) for one in types):
            raise TypeError('on_event needs to be told which: write @app.on_event("invoice.paid").')
        from semel.triggers.flow_options import FLOW_OPTIONS
        from semel.triggers.models import EventTriggerConfig
        from semel.triggers.problems import validate

        given: dict[str, Any] = {"type": "event", "types": types, "source": source, "where": where}
        flow = (debounce, batch, singleton, throttle, rate_limit, cancel_on)
        given |= {name: value for name, value in zip(FLOW_OPTIONS, flow, strict=True) if value is not None}
        trigger = validate(EventTriggerConfig, given, "on_event")

        def declare(function: F) -> F:
            one = _Declaration(cast(Any, function), trigger, reuse, queue, priority)
            self.events.declare(id, one)
            return function

        return declare

    async def publish(self, event: AnyEvent, **options: Unpack[PublishOptions]) -> Published[Handle[Any]]:
        """Record an event and start a run for each activity that wants it. When this returns, both are committed.

        An `event_id` counts once, for 30 days unless `event_retention` says otherwise: a second delivery is counted,
        and the answer says `duplicate` and has the runs of the first. Same id, other content: KeyConflict. With
        `deliver_at` it is delivered then. `source` has rules for where it comes from; what `semel.triggers.cloudevents`
        has read is published as it is. With a `connection` it is published when your transaction is committed; in
        another database than the engine's it goes through the outbox, and its runs are not known yet.
        """
        return await self.events.publish(event, **options)

    async def publish_many(
        self, events: Iterable[AnyEvent], **options: Unpack[PublishOptions]
    ) -> Sequence[Published[Handle[Any]]]:
        """Many at once, a thousand to a commit; answers come back in order.

        Everything is checked before anything is written. A KeyConflict is raised after the others are in.
        """
        return await self.events.publish_many(events, **options)


def _event_keys(event_id: str) -> list[str]:
    """How an event id is stored: derived from the event's own, or as it is where it was read from a record."""
    given = check_key(event_id, "event_id", EVENT_ID_LENGTH)
    return [*dict.fromkeys((event_part(given), given))]


def _unsubscribed(activity: str) -> NotFound:
    return NotFound(f"activity {activity!r} wants no events. Publish what your app declares with: semel apply")


def _missing(event_id: str) -> NotFound:
    return NotFound(f"there is no event {event_id!r}: it never came, or is past its retention. See: semel events list")
