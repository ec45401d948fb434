"""Which activities want an event, and the runs that they want: decided in memory, by what was read of subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace as replace_fields
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from semel.codec import MAX_PAYLOAD, decoder_of, encode
from semel.contract.decision import Reuse
from semel.contract.durations import format_duration
from semel.contract.event_flow import MOST_BYTES, Batch, Debounce
from semel.contract.events import EventMatch, EventState, MatchKind
from semel.contract.fingerprint import fingerprint
from semel.contract.keys import KEY_LENGTH
from semel.contract.runs import Run, RunWindow, Why
from semel.contract.times import instant
from semel.engine.event_flow import Cancel, Take
from semel.engine.ids import new_id
from semel.engine.start_request import StartRequest
from semel.engine.subscriptions import EventPattern, Publication, SubscriptionDefinition, SubscriptionRow
from semel.engine.ticks import Start
from semel.errors import InvalidValue, SemelError, phrase
from semel.triggers.ids import event_run_id
from semel.triggers.patterns import PatternIndex, matches

if TYPE_CHECKING:
    from semel.triggers.envelope import EventEnvelope
    from semel.triggers.event_keys import EventKey
    from semel.triggers.filters import EventFilter, FilterInput

Gather = TypeVar("Gather", Debounce, Batch)

CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""An event that is dated less ahead than this is not told: clocks differ a little."""
MOST_TYPES: Final = 1000
"""Types of events whose subscriptions are remembered: most events are of few types."""
PROBLEM_LENGTH: Final = 2000
"""Characters of a problem that are stored."""
ROOM_FOR_RUN: Final = 16_384
"""Bytes that are kept free beside gathered events, for what a run is told of itself."""
_read_arguments: Final = decoder_of(dict[str, Raw]).decode
_encode_arguments: Final = msgspec.json.Encoder(order="sorted").encode


def run_key(activity: str, publication: Publication) -> str:
    """The key of the run of an activity for an event, as `event_run_id` makes it, which is seldom asked."""
    key = f"activity-{activity}:{publication.id}"
    return key if len(key) <= KEY_LENGTH else event_run_id(activity, publication.event.event_id)


class FilterData:
    """An event as filters read it, made when the first one asks: an app without filters needs no library for them."""

    __slots__ = ("_encoded", "_event", "_input")

    def __init__(self, event: EventEnvelope, encoded: bytes | None = None) -> None:
        self._event = event
        self._encoded = encoded
        self._input: FilterInput | None = None

    def get(self) -> FilterInput:
        """The event, converted once."""
        if self._input is None:
            self._input = _filter_input()(self._event, self._encoded)
        return self._input


@cache
def _filter_input() -> type[FilterInput]:
    from semel.triggers.filters import FilterInput

    return FilterInput


class Subscription:
    """An activity that wants events, with its filters ready."""

    def __init__(self, row: SubscriptionRow, max_payload: int = MAX_PAYLOAD) -> None:
        self.id = row.id
        self.version = row.version
        self.paused = row.paused_at is not None
        self._max_payload = max_payload
        self.definition = SubscriptionDefinition.from_bytes(row.definition, row.id)
        self._filters: dict[str, EventFilter] = {}
        self._keys: dict[str, EventKey] | None = None
        self._arguments = _read_arguments(self.definition.payload)
        self._fingerprint = fingerprint(self.definition.options.name, self.definition.payload)
        self._matches = EventMatch(self.id, MatchKind.MATCHES)

    @property
    def takes(self) -> bool:
        """Does it take events in, instead of running for each at once?"""
        return self.definition.flow is not None or self.paused

    @property
    def types(self) -> list[str]:
        """The types of events that it wants."""
        return [type_ for pattern in self.definition.patterns for type_ in pattern.types]

    def find_patterns(self, type: str) -> tuple[EventPattern, ...]:
        """Its patterns that events of a type match."""
        return tuple(
            pattern for pattern in self.definition.patterns if any(matches(one, type) for one in pattern.types)
        )

    def match(self, event: EventEnvelope, data: FilterData) -> EventMatch:
        """Whether it wants an event: by the first of its patterns that matches, else the nearest miss."""
        return self.match_patterns(self.find_patterns(event.type), event, data)

    def match_patterns(self, patterns: Sequence[EventPattern], event: EventEnvelope, data: FilterData) -> EventMatch:
        """Whether it wants an event of a type that these patterns of it match."""
        nearest: EventMatch | None = None
        for pattern in patterns:
            if pattern.source is not None and not matches(pattern.source, event.source):
                nearest = nearest or EventMatch(self.id, MatchKind.OTHER_SOURCE, f"wants {pattern.source}")
                continue
            found = self._decide(pattern, data)
            if found is self._matches:
                return found
            if nearest is None or nearest.kind is not MatchKind.PROBLEM:
                nearest = found
        return nearest or EventMatch(self.id, MatchKind.OTHER_TYPE, f"wants {', '.join(self.types)}")

    def _decide(self, pattern: EventPattern, data: FilterData) -> EventMatch:
        if pattern.where is None:
            return self._matches
        filter_ = self._filters.get(pattern.where)
        if filter_ is None:
            from semel.triggers.filters import compile_filter

            filter_ = self._filters[pattern.where] = compile_filter(pattern.where)
        result = filter_.decide(data.get())
        if result.problem is not None:
            return EventMatch(self.id, MatchKind.PROBLEM, f"{pattern.where}: {result.problem}")
        return self._matches if result.matched else EventMatch(self.id, MatchKind.FILTERED, pattern.where)

    def start(self, publication: Publication, why: Why, reuse: Reuse | None) -> Start:
        """The start of its run for an event. InvalidValue: the event does not fit beside the other arguments."""
        key = run_key(self.id, publication)
        at = publication.published_at
        return self.start_for(key, publication.event, (publication.envelope,), at, why, reuse)

    def start_for(
        self,
        key: str,
        event: EventEnvelope,
        envelopes: Sequence[bytes],
        at: datetime,
        why: Why = Why.EVENT,
        reuse: Reuse | None = None,
    ) -> Start:
        """The start of a run for one or more events, of which `event` is the newest and the last of the envelopes."""
        definition, max_payload = self.definition, self._max_payload
        at = (event.time or at).astimezone(UTC)
        arguments = self._arguments
        payload, print_ = definition.payload, self._fingerprint
        if definition.event_parameter is not None:
            arguments = {**arguments, definition.event_parameter: Raw(envelopes[-1])}
        if definition.events_parameter is not None:
            arguments = {**arguments, definition.events_parameter: Raw(b"[" + b",".join(envelopes) + b"]")}
        if definition.run_parameter is not None:
            told = Run(self.id, key, at, RunWindow(None, at, 0), why, self.version, event_id=event.event_id)
            arguments = {**arguments, definition.run_parameter: Raw(encode(told, "run"))}
        if arguments is not self._arguments:
            payload = _encode_arguments(arguments)
            print_ = fingerprint(definition.options.name, payload)
            if len(payload) > max_payload:
                raise InvalidValue(
                    f"the input of its run takes {len(payload):,} bytes as JSON; at most {max_payload:,} are stored."
                )
        options = definition.options if reuse is None else replace(definition.options, reuse=reuse)
        request = StartRequest(new_id(), key, payload, print_, options, definition.concurrency_key)
        return Start(request, self.id, at, why, self.version, None, 0)

    @property
    def cancel_on(self) -> EventPattern | None:
        """The events that cancel its runs."""
        flow = self.definition.flow
        return None if flow is None else flow.cancel_on

    def decide_cancel(self, data: FilterData) -> EventMatch:
        """Whether an event of a type that cancels its runs does, by the filter."""
        return self._matches if self.cancel_on is None else self._decide(self.cancel_on, data)

    def read_keys(
        self, event: EventEnvelope, data: FilterData, options: Collection[str] | None = None
    ) -> tuple[dict[str, str], str | None]:
        """The key of an event for each of its options that goes by one, and the problem with one that has none."""
        flow = self.definition.flow
        if flow is None or not flow.keys:
            return {}, None
        if self._keys is None:
            from semel.triggers.event_keys import EventKey

            self._keys = {option: EventKey(text) for option, text in flow.keys.items()}
        keys: dict[str, str] = {}
        for option, key in self._keys.items():
            if options is not None and option not in options:
                continue
            found = key.read(event, data.get() if key.needs_input else None)
            if found.key is None:
                return {}, found.problem
            keys[option] = found.key
        return keys, None

    def fit(self, policy: Gather) -> Gather:
        """How it gathers events, so that the events of a run fit beside its other arguments."""
        return replace_fields(policy, most_bytes=self._room)

    @property
    def _room(self) -> int:
        """Bytes of events that one of its runs can have."""
        definition = self.definition
        if definition.events_parameter is None:
            return MOST_BYTES
        reserve = min(ROOM_FOR_RUN, self._max_payload // 4)
        room = self._max_payload - len(definition.payload) - reserve
        return min(MOST_BYTES, room if definition.event_parameter is None else room // 2)

    def take(self, publication: Publication, keys: Mapping[str, str], why: Why) -> Take:
        """Take an event in. InvalidValue: it is too large for a run with others."""
        size, flow = len(publication.envelope) + 1, self.definition.flow
        if flow is not None and flow.gather is not None and size > self._room:
            raise InvalidValue(f"the event takes {size:,} bytes; with {flow.gather} one may take {self._room:,}.")
        return Take(self, publication, keys, run_key(self.id, publication), why)


def _dated_too_early(publication: Publication) -> str | None:
    """Why an event is parked that is dated further in the future than its source may date it."""
    time, most = publication.event.time, publication.max_future
    if time is None or most is None or time - publication.published_at <= most:
        return None
    ahead = format_duration(timedelta(seconds=round((time - publication.published_at).total_seconds())))
    return f"it is dated {ahead} in the future, and its source may date events {format_duration(most)} ahead"


class Plan(NamedTuple):
    """What is to become of an event, by the subscriptions of one moment."""

    publication: Publication
    state: EventState
    activities: tuple[str, ...]
    problem: str | None
    starts: tuple[Start, ...]
    takes: tuple[Take, ...] = ()
    """Activities that gather or limit events, or are paused, take it in."""
    cancels: tuple[Cancel, ...] = ()
    """Activities of which it cancels runs."""

    @property
    def future(self) -> bool:
        """Is it dated later than it comes?"""
        time = self.publication.event.time
        return time is not None and time - self.publication.published_at > CLOCKS_DIFFER

    def row(self) -> tuple[object, ...]:
        """It as a row of the statement `add_events`."""
        publication, event = self.publication, self.publication.event
        return (
            publication.id,
            event.type,
            event.source,
            self.state.value,
            ",".join(self.activities),
            self.problem,
            publication.delivery,
            self.future,
            None if publication.deliver_at is None else instant(publication.deliver_at),
            publication.fingerprint,
            publication.envelope,
        )


class GatheredRun(NamedTuple):
    """A run for several events, which is to be run again."""

    key: str
    newest: EventEnvelope
    envelopes: tuple[bytes, ...]
    """Oldest first."""


NOT_GATHERED: Final[Mapping[str, GatheredRun]] = MappingProxyType({})


class Router:
    """The subscriptions of a namespace at one moment, which `stamp` stands for."""

    def __init__(self, stamp: int, rows: Sequence[SubscriptionRow], max_payload: int = MAX_PAYLOAD) -> None:
        self.stamp = stamp
        self.subscriptions = {row.id: Subscription(row, max_payload) for row in rows}
        self.functions = {id_: one.definition.options.name for id_, one in self.subscriptions.items()}
        """What each activity runs."""
        self.special = frozenset(id_ for id_, one in self.subscriptions.items() if one.takes)
        """Activities that gather or limit events, or are paused."""
        again = [one for one in self.subscriptions.values() if one.definition.options.reuse is Reuse.FAILED_ONLY]
        self.runs_after_failure = bool(again)
        """Does some activity want that a delivery after a failure runs again?"""
        self._by_type = PatternIndex((one.types, one) for one in self.subscriptions.values())
        cancelling = [(on.types, one) for one in self.subscriptions.values() if (on := one.cancel_on) is not None]
        self._cancelling = PatternIndex(cancelling) if cancelling else None
        self._known_types: dict[str, list[tuple[Subscription, tuple[EventPattern, ...]]]] = {}

    def plan(
        self,
        publication: Publication,
        *,
        why: Why = Why.EVENT,
        only: Collection[str] | None = None,
        reuse: Reuse | None = None,
        gathered: Mapping[str, GatheredRun] = NOT_GATHERED,
    ) -> Plan:
        """What is to become of an event. `only`: of these activities, whether or not they want it.

        A replay runs at once, whatever gathers or limits events; an activity that has run for it among others, as
        `gathered` says, runs for all of them again. What cannot be routed is parked, with its reason, as a whole: none
        of its runs is started.
        """
        early = _dated_too_early(publication)
        if early is not None:
            return Plan(publication, EventState.PARKED, (), early, ())
        if publication.deliver_at is not None and publication.deliver_at > publication.published_at:
            return Plan(publication, EventState.WAITING, (), None, ())
        data = FilterData(publication.event, publication.envelope)
        wanted, problems = self._find(publication.event, data) if only is None else (self._take(only), [])
        starts: list[Start] = []
        takes: list[Take] = []
        activities: list[str] = []
        for subscription in wanted:
            try:
                if why is Why.REPLAY and (others := gathered.get(subscription.id)) is not None:
                    at = publication.published_at
                    starts.append(subscription.start_for(*others, at, why, reuse))
                elif why is Why.REPLAY or not subscription.takes:
                    starts.append(subscription.start(publication, why, reuse))
                else:
                    keys, problem = subscription.read_keys(publication.event, data)
                    if problem is not None:
                        problems.append(EventMatch(subscription.id, MatchKind.PROBLEM, problem))
                        continue
                    takes.append(subscription.take(publication, keys, why))
                activities.append(subscription.id)
            except SemelError as error:
                why_not = f"activity {subscription.id} cannot be run for it: {phrase(error)}"
                return Plan(publication, EventState.PARKED, (), why_not[:PROBLEM_LENGTH], ())
        cancels = () if only is not None else self._find_cancels(publication, data, problems)
        activities += [one.subscription.id for one in cancels if one.subscription.id not in activities]
        problem = "; ".join(map(str, problems))[:PROBLEM_LENGTH] if problems else None
        state = EventState.ROUTED if activities else EventState.UNMATCHED
        return Plan(publication, state, tuple(activities), problem, tuple(starts), tuple(takes), tuple(cancels))

    def _find(self, event: EventEnvelope, data: FilterData) -> tuple[list[Subscription], list[EventMatch]]:
        candidates = self._known_types.get(event.type)
        if candidates is None:
            if len(self._known_types) >= MOST_TYPES:
                self._known_types.clear()
            found = self._by_type.find(event.type)
            candidates = self._known_types[event.type] = [(one, one.find_patterns(event.type)) for one in found]
        if not candidates:
            return [], []
        wanted, problems = [], []
        for one, patterns in candidates:
            match = one.match_patterns(patterns, event, data)
            if match.kind is MatchKind.MATCHES:
                wanted.append(one)
            elif match.kind is MatchKind.PROBLEM:
                problems.append(match)
        return wanted, problems

    def _find_cancels(self, publication: Publication, data: FilterData, problems: list[EventMatch]) -> Sequence[Cancel]:
        """The activities of which an event cancels runs. One that it cannot be decided for is a problem."""
        if self._cancelling is None:
            return ()
        found = []
        for one in self._cancelling.find(publication.event.type):
            match = one.decide_cancel(data)
            keys, problem = one.read_keys(publication.event, data, ("cancel_on",))
            if match.kind is MatchKind.PROBLEM:
                problems.append(match)
            elif match.kind is MatchKind.MATCHES and problem is not None:
                problems.append(EventMatch(one.id, MatchKind.PROBLEM, f"cancel_on: {problem}"))
            elif match.kind is MatchKind.MATCHES:
                found.append(Cancel(one, publication, keys.get("cancel_on", "")))
        return found

    def _take(self, only: Collection[str]) -> list[Subscription]:
        return [one for id_, one in self.subscriptions.items() if id_ in only]

    def matches(self, event: EventEnvelope) -> list[EventMatch]:
        """For each activity, whether it wants an event, and why not."""
        data = FilterData(event)
        return [one.match(event, data) for one in self.subscriptions.values()]
