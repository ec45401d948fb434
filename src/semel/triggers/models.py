"""Activities and their triggers: what is to run, and what makes it run. Data, from code, from files or from an API."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self, Unpack
from uuid import UUID

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    PlainSerializer,
    StrictBool,
    StrictInt,
    WithJsonSchema,
    model_validator,
)

from semel.contract.durations import Duration
from semel.contract.slot_policy import MAX_BUFFER, MAX_CATCHUP, MOST_BUFFERED, Misfire, Overlap, SlotPolicy
from semel.contract.timing import MAX_TIMES, Timing
from semel.contract.zones import load_zone
from semel.errors import SemelError, phrase
from semel.triggers.fields import (
    ActivityId,
    EventType,
    Instant,
    Model,
    OneOrMany,
    PositiveSpan,
    QueueName,
    Source,
    Span,
    TaskType,
    Text,
    checked,
    refuse,
)
from semel.triggers.filters import WHERE_LENGTH
from semel.triggers.flow_options import (
    FLOW_OPTIONS,
    MOST_TYPES,
    BatchConfig,
    CancelOnConfig,
    DebounceConfig,
    RateLimitConfig,
    Shorthand,
    SingletonConfig,
    ThrottleConfig,
    check_flow,
    read_filter,
)
from semel.triggers.options import (
    IntervalStart,
    MisfirePolicy,
    NonexistentPolicy,
    OverlapPolicy,
    RecurringOptions,
    RepeatedPolicy,
    ScheduleOptions,
)

MOST_TRIGGERS: Final = 100
MOST_TASKS: Final = 1000
MOST_EXPRESSIONS: Final = 100
_SHARED_OPTIONS: Final[tuple[str, ...]] = (
    "overlap",
    "max_buffer",
    "start_deadline",
    "finish_by",
    "pause_after_failures",
    "max_catchup",
    "grace",
)
"""Options of triggers by time that count for the whole activity."""
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


def _read_exclusion(value: object, _: str) -> date | str:
    """A date, also where it is written as text, or a cron expression."""
    if isinstance(value, str):
        try:
            return date.fromisoformat(value.strip()) if _DATE.fullmatch(value.strip()) else value
        except ValueError as error:
            raise refuse(f"{value!r} is not a date: {error}") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise refuse(f"{value!s}: give a date, such as '2026-12-25', or a cron expression")


def _read_zone(name: object, what: str) -> str:
    return load_zone(name, what).key


Exclusion = Annotated[
    date | str,
    BeforeValidator(checked(_read_exclusion)),
    PlainSerializer(str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["2026-12-25", "* * * * SAT,SUN"]}),
]
TimeZone = Annotated[
    str,
    BeforeValidator(checked(_read_zone)),
    WithJsonSchema({"type": "string", "examples": ["UTC", "Europe/Paris"]}),
]


class TaskSpec(Model):
    """A task or a workflow that a run of an activity starts, with its arguments."""

    task_type: TaskType
    """The registered name of a task or a workflow."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """The arguments by their names, as JSON values."""
    queue: QueueName | None = None
    """Another queue than the function's own."""
    priority: StrictInt | None = Field(default=None, ge=-1_000_000, le=1_000_000)
    """Higher runs first; without it the function's own."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            task_type: str,
            arguments: Mapping[str, Any] = ...,
            queue: str | None = ...,
            priority: int | None = ...,
        ) -> None: ...


class Schedule(Model):
    """What every trigger by time has."""

    type: str
    """Which kind of trigger it is."""
    overlap: OverlapPolicy = "skip"
    """What happens to a slot that is due while the last run is still going: it is skipped, waits (the newest only, or
    all of them), runs beside it, or ends it by a cancellation or at once."""
    max_buffer: StrictInt = Field(default=MAX_BUFFER, ge=1, le=MOST_BUFFERED)
    """How many slots wait at most, with `buffer_all` and behind slots that are caught up; the others are skipped."""
    start_deadline: PositiveSpan | None = None
    """A slot that has waited so long, for the last run to end or for a worker to begin it, is dropped. Without it, it
    waits as long as it takes."""
    finish_by: PositiveSpan | None = None
    """A run should have ended so long after its slot; `semel doctor` reports one that has not."""
    pause_after_failures: StrictInt | None = Field(default=None, ge=1)
    """Pause the schedule after so many failed runs in a row. Cancelled runs do not count."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.timing("any")
        except SemelError as error:
            raise refuse(phrase(error)) from None
        self._check_policies()
        return self

    def policy(self) -> SlotPolicy:
        """What becomes of slots that are late, overlap or wait."""
        return SlotPolicy(overlap=Overlap(self.overlap), max_buffer=self.max_buffer, start_deadline=self.start_deadline)

    @abstractmethod
    def timing(self, schedule_id: str) -> Timing:
        """When it fires. The jitter of its slots depends on the id of the schedule."""

    def _check_policies(self) -> None:
        """Refuse what does not go together."""


class RecurringSchedule(Schedule):
    """What a trigger has whose slots come again and again."""

    timezone: TimeZone = "UTC"
    """The IANA time zone of wall-clock times and of excluded dates."""
    misfire_policy: MisfirePolicy = "skip"
    """What happens to slots that were missed: none of them runs, the newest `max_catchup` run one after the other, or
    one run covers all of them. Omitted, it is the activity's `dedupe_key_strategy`; given, it must be the same."""
    max_catchup: StrictInt = Field(default=MAX_CATCHUP, ge=1, le=MOST_BUFFERED)
    """How many missed slots `catchup` runs."""
    grace: Span | None = None
    """Until how long after its time a slot still counts as on time. Without it: half of the time to the next slot, and
    an hour at most."""
    jitter: Span = Field(default=timedelta(0), json_schema_extra={"default": "0"})
    """Spread runs over so long after their slots; by how much a slot is put off never changes."""
    start_at: Instant | None = None
    """No slot before this time."""
    end_at: Instant | None = None
    """No slot at or after this time."""
    exclude: Annotated[tuple[Exclusion, ...], Field(max_length=MAX_TIMES), OneOrMany()] = ()
    """Dates on which nothing runs, and cron expressions of wall-clock times at which nothing runs."""

    @property
    def says_misfire(self) -> bool:
        """Whether it was given a misfire policy of its own."""
        return "misfire_policy" in self.model_fields_set

    def policy(self) -> SlotPolicy:
        """What becomes of slots that are late, overlap or wait."""
        return replace(
            super().policy(), misfire=Misfire(self.misfire_policy), grace=self.grace, max_catchup=self.max_catchup
        )

    def with_misfire(self, policy: MisfirePolicy) -> Self:
        """This trigger with the misfire policy of its activity."""
        if self.says_misfire and self.misfire_policy == policy:
            return self
        trigger = self.model_copy(update={"misfire_policy": policy})
        trigger._check_misfire()
        return trigger

    def _check_policies(self) -> None:
        if self.says_misfire:
            self._check_misfire()

    def _check_misfire(self) -> None:
        if self.misfire_policy != "catchup" and self.max_catchup != MAX_CATCHUP:
            raise refuse(
                f"max_catchup={self.max_catchup} goes with misfire_policy='catchup', not with {self.misfire_policy!r}"
            )


class CronTriggerConfig(RecurringSchedule):
    """Runs at the wall-clock times of one or more cron expressions."""

    type: Literal["cron"] = "cron"
    """Which kind of trigger it is."""
    cron: Annotated[tuple[str, ...], Field(min_length=1, max_length=MOST_EXPRESSIONS), OneOrMany()]
    """Cron expressions, or one: minute, hour, day, month, weekday, or a nickname such as `@daily`."""
    seconds: StrictBool = False
    """Expressions have six fields, seconds first."""
    nonexistent: NonexistentPolicy = "shift"
    """What happens to a wall-clock time that does not exist, since clocks go forward: it runs at the shift, or not."""
    repeated: RepeatedPolicy = "first"
    """Which of a wall-clock time that comes twice runs, since clocks go back."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            type: Literal["cron"] = ...,
            cron: str | Sequence[str],
            seconds: bool = ...,
            nonexistent: NonexistentPolicy = ...,
            repeated: RepeatedPolicy = ...,
            **options: Unpack[RecurringOptions],
        ) -> None: ...

    def timing(self, schedule_id: str) -> Timing:
        """When it fires. The jitter of its slots depends on the id of the schedule."""
        return Timing(
            cron=self.cron,
            seconds=self.seconds,
            nonexistent=self.nonexistent,
            repeated=self.repeated,
            timezone=self.timezone,
            exclude=self.exclude,
            start_at=self.start_at,
            end_at=self.end_at,
            jitter=self.jitter,
            schedule_id=schedule_id,
        )


class IntervalTriggerConfig(RecurringSchedule):
    """Runs again and again after the same elapsed time, whatever clocks do."""

    type: Literal["interval"] = "interval"
    """Which kind of trigger it is."""
    every: PositiveSpan
    """The time between two slots. They are counted from `start_at`, or from 1970-01-01T00:00:00Z."""
    after: IntervalStart = "start"
    """Count from slot to slot, or from the end of a run to the next."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            type: Literal["interval"] = ...,
            every: Duration,
            after: IntervalStart = ...,
            **options: Unpack[RecurringOptions],
        ) -> None: ...

    def _check_policies(self) -> None:
        super()._check_policies()
        if self.after == "finish" and self.overlap != "skip":
            raise refuse(f"overlap={self.overlap!r} does not go with after='finish': its runs never overlap")

    def timing(self, schedule_id: str) -> Timing:
        """When it fires. The jitter of its slots depends on the id of the schedule."""
        return Timing(
            every=self.every,
            after=self.after,
            timezone=self.timezone,
            exclude=self.exclude,
            start_at=self.start_at,
            end_at=self.end_at,
            jitter=self.jitter,
            schedule_id=schedule_id,
        )


class OnceTriggerConfig(Schedule):
    """Runs at given times, each once, however late it is by then."""

    type: Literal["once"] = "once"
    """Which kind of trigger it is."""
    at: Annotated[tuple[Instant, ...], Field(min_length=1, max_length=MAX_TIMES), OneOrMany()]
    """The times, or one."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            type: Literal["once"] = ...,
            at: datetime | str | Sequence[datetime | str],
            **options: Unpack[ScheduleOptions],
        ) -> None: ...

    def timing(self, schedule_id: str) -> Timing:
        """When it fires."""
        return Timing(at=self.at, schedule_id=schedule_id)


class EventTriggerConfig(Model):
    """Runs once for each event that matches."""

    type: Literal["event"] = "event"
    """Which kind of trigger it is."""
    types: Annotated[tuple[EventType, ...], Field(min_length=1, max_length=MOST_TYPES), OneOrMany()]
    """Types of events, or one; `*` stands for any characters, as in `invoice.*`."""
    source: Source | None = None
    """Only events of this source; `*` stands for any characters. Without it, of every source."""
    where: Annotated[str, Field(min_length=1, max_length=WHERE_LENGTH), AfterValidator(read_filter)] | None = None
    """Only events for which this expression of CEL is true, such as `data.cents > 0`."""
    debounce: Annotated[DebounceConfig | None, Shorthand("wait")] = None
    """One run after a time without a newer event: `"5m"`, or a table."""
    batch: BatchConfig | None = None
    """One run for many events: so many, or those of some time."""
    singleton: Annotated[SingletonConfig | None, Shorthand("mode")] = None
    """One run at a time: `"skip"` what comes meanwhile, or `"cancel"` the run for it."""
    throttle: Annotated[ThrottleConfig | None, Shorthand("rate")] = None
    """At most so many starts in a time, such as `"10/min"`; the others start later, in their order."""
    rate_limit: Annotated[RateLimitConfig | None, Shorthand("rate")] = None
    """At most so many starts in a time, such as `"10/min"`; the others are dropped."""
    cancel_on: Annotated[CancelOnConfig | None, Shorthand("types")] = None
    """Events that cancel runs, such as `"order.cancelled"`."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            type: Literal["event"] = ...,
            types: str | Sequence[str],
            source: str | None = ...,
            where: str | None = ...,
            debounce: Duration | Mapping[str, Any] | DebounceConfig | None = ...,
            batch: Mapping[str, Any] | BatchConfig | None = ...,
            singleton: Literal["skip", "cancel"] | Mapping[str, Any] | SingletonConfig | None = ...,
            throttle: str | Mapping[str, Any] | ThrottleConfig | None = ...,
            rate_limit: str | Mapping[str, Any] | RateLimitConfig | None = ...,
            cancel_on: str | Sequence[str] | Mapping[str, Any] | CancelOnConfig | None = ...,
        ) -> None: ...

    @property
    def flow_options(self) -> tuple[str, ...]:
        """The names of the options that were given which decide about more than one event."""
        return tuple(name for name in FLOW_OPTIONS if getattr(self, name) is not None)

    @model_validator(mode="after")
    def _check_flow(self) -> Self:
        check_flow(self.flow_options)
        return self


Trigger = Annotated[
    CronTriggerConfig | IntervalTriggerConfig | OnceTriggerConfig | EventTriggerConfig, Field(discriminator="type")
]


class ActivityDefinition(Model):
    """What is to run, and what makes it run."""

    activity_id: ActivityId
    """A UUID or a name. It is part of the id of every run: another id makes every slot and event look new."""
    description: Text = ""
    """What it is for, in words for people."""
    triggers: Annotated[tuple[Trigger, ...], Field(min_length=1, max_length=MOST_TRIGGERS), OneOrMany()]
    """What makes it run. Slots of two triggers at one time are one run."""
    tasks: Annotated[tuple[TaskSpec, ...], Field(min_length=1, max_length=MOST_TASKS), OneOrMany()]
    """What a run starts, in this order."""
    dedupe_key_strategy: MisfirePolicy = "skip"
    """What happens to slots that were missed. Omitted, it is the `misfire_policy` of the triggers; given, it must be
    the same."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            activity_id: str | UUID,
            description: str = ...,
            triggers: Trigger | Sequence[Trigger],
            tasks: TaskSpec | Sequence[TaskSpec],
            dedupe_key_strategy: MisfirePolicy = ...,
        ) -> None: ...

    @model_validator(mode="after")
    def _agree_on_misfires(self) -> Self:
        strategy = self._strategy()
        triggers = tuple(
            one.with_misfire(strategy) if isinstance(one, RecurringSchedule) else one for one in self.triggers
        )
        # A frozen model is complete only after this: what was omitted is inherited.
        self.__dict__["dedupe_key_strategy"] = strategy
        self.__dict__["triggers"] = triggers
        return self

    def _strategy(self) -> MisfirePolicy:
        """The one policy for missed slots."""
        recurring = [one for one in self.triggers if isinstance(one, RecurringSchedule)]
        said = {one.misfire_policy for one in recurring if one.says_misfire}
        if "dedupe_key_strategy" not in self.model_fields_set:
            if len(said) > 1:
                raise refuse(
                    f"its triggers have different misfire policies ({', '.join(sorted(said))}): "
                    "give them the same one, or make an activity of each"
                )
            return next(iter(said), self.dedupe_key_strategy)
        for other in sorted(said - {self.dedupe_key_strategy}):
            raise refuse(
                f"dedupe_key_strategy={self.dedupe_key_strategy!r} does not match misfire_policy={other!r} of a "
                "trigger: give both the same value, or only one of them"
            )
        return self.dedupe_key_strategy

    @model_validator(mode="after")
    def _agree_on_options(self) -> Self:
        """Give every trigger by time the options that count for all of them."""
        shared: dict[str, Any] = {}
        for name in _SHARED_OPTIONS:
            said = {getattr(one, name) for one in self._by_time() if name in one.model_fields_set}
            if len(said) > 1:
                values = ", ".join(sorted(str(value) for value in said))
                raise refuse(
                    f"its triggers have different values of {name} ({values}): it counts for the whole activity, so "
                    "give it once, or make an activity of each"
                )
            if said:
                shared[name] = said.pop()
        finishing = any(isinstance(one, IntervalTriggerConfig) and one.after == "finish" for one in self.triggers)
        if finishing and len(self._by_time()) > 1:
            raise refuse("an interval with after='finish' has no trigger by time beside it: make an activity of each")
        self.__dict__["triggers"] = tuple(
            one.model_copy(update={name: shared[name] for name in shared if name in type(one).model_fields})
            if isinstance(one, Schedule)
            else one
            for one in self.triggers
        )
        return self

    def _by_time(self) -> list[Schedule]:
        return [one for one in self.triggers if isinstance(one, Schedule)]

    def schedule_options(self) -> Schedule:
        """A trigger by time, one that recurs if there is one: its options count for the whole activity."""
        return min(self._by_time(), key=lambda one: not isinstance(one, RecurringSchedule))

    @model_validator(mode="after")
    def _check_events(self) -> Self:
        if ":" in self.activity_id and any(isinstance(one, EventTriggerConfig) for one in self.triggers):
            raise refuse(
                f"activity_id={self.activity_id!r} has a ':' in it, so it cannot have event triggers: rename it"
            )
        return self
