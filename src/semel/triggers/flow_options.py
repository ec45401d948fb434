"""Options of event triggers that decide about many events at once: debounce, batch, singleton and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StrictInt,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_before_validator_function

from semel.contract.durations import Duration, format_duration
from semel.contract.event_flow import MOST_EVENTS, MOST_STARTS, Batch, Debounce, Singleton, StartLimit
from semel.contract.rates import UNLIMITED, parse_rate
from semel.errors import SemelError, phrase
from semel.triggers.event_keys import check_event_key
from semel.triggers.fields import EventType, Model, OneOrMany, Wait, checked, refuse
from semel.triggers.filters import WHERE_LENGTH, compile_filter

MOST_TYPES: Final = 100
_MICROSECOND: Final = timedelta(microseconds=1)
_GATHERING: Final = ("debounce", "batch")
_LIMITING: Final = ("singleton", "throttle", "rate_limit")
FLOW_OPTIONS: Final = (*_GATHERING, *_LIMITING, "cancel_on")

KeyExpression = Annotated[
    str,
    BeforeValidator(checked(check_event_key)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": WHERE_LENGTH, "examples": ["data.user_id"]}),
]


class Shorthand:
    """Makes a field of a table take the value of one of its fields, too: `"5m"` for `{wait = "5m"}`."""

    def __init__(self, field: str) -> None:
        self._field = field

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(self._expand, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        table = handler(schema)
        short = handler.resolve_ref_schema(table["anyOf"][0])["properties"][self._field]
        return {"anyOf": [{name: value for name, value in short.items() if name != "description"}, *table["anyOf"]]}

    def _expand(self, value: Any) -> Any:
        return value if value is None or isinstance(value, Mapping | Model) else {self._field: value}


def read_filter(where: str) -> str:
    """Check a filter where it is declared."""
    try:
        compile_filter(where)
    except SemelError as error:
        raise refuse(phrase(error).removeprefix("where=")) from None
    return where


def _read_rate(value: object, what: str) -> str:
    rate = parse_rate(value, what, may_lift=False) if isinstance(value, str) else UNLIMITED
    if not 1 <= rate.count <= MOST_STARTS:
        raise refuse(f"{value!r}: write from 1 to {MOST_STARTS:,} and a unit, such as '10/min' or '500/hour'")
    return str(rate)


StartRate = Annotated[
    str, BeforeValidator(checked(_read_rate)), WithJsonSchema({"type": "string", "examples": ["10/min", "500/hour"]})
]


class DebounceConfig(Model):
    """One run after a time without a newer event, with all events that came until then."""

    wait: Wait
    """The run starts so long after the newest event."""
    max_wait: Wait | None = None
    """The run starts so long after the first event at the latest. Without it, events that keep coming put it off until
    there are 1,000 of them."""
    key: KeyExpression | None = None
    """Events with different keys do not wait for each other."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(self, *, wait: Duration, max_wait: Duration | None = ..., key: str | None = ...) -> None: ...

    @model_validator(mode="after")
    def _check_waits(self) -> Self:
        if self.max_wait is not None and self.max_wait <= self.wait:
            raise refuse(
                f"max_wait={format_duration(self.max_wait)!r} is not longer than wait={format_duration(self.wait)!r}, "
                "so no event could put the run off: give a longer one, or none"
            )
        return self

    def policy(self) -> Debounce:
        """As the contract reads it."""
        most = None if self.max_wait is None else self.max_wait // _MICROSECOND
        return Debounce(self.wait // _MICROSECOND, most)


class BatchConfig(Model):
    """One run for many events."""

    size: StrictInt = Field(ge=2, le=MOST_EVENTS)
    """The run starts with so many events."""
    wait: Wait
    """The run starts so long after the first event at the latest."""
    key: KeyExpression | None = None
    """Events with different keys are in different batches."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(self, *, size: int, wait: Duration, key: str | None = ...) -> None: ...

    def policy(self) -> Batch:
        """As the contract reads it."""
        return Batch(self.size, self.wait // _MICROSECOND)


class SingletonConfig(Model):
    """One run at a time."""

    mode: Literal["skip", "cancel"]
    """An event that comes while a run is going is skipped, or the run is cancelled for it if the event is newer."""
    key: KeyExpression | None = None
    """One run at a time for each key."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(self, *, mode: Literal["skip", "cancel"], key: str | None = ...) -> None: ...

    def policy(self) -> Singleton:
        """As the contract reads it."""
        return Singleton(self.mode)


class _StartLimitConfig(Model):
    rate: StartRate
    """How many may start, and in which time: `10/min`."""
    key: KeyExpression | None = None
    """The limit counts for each key."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(self, *, rate: str, key: str | None = ...) -> None: ...

    def policy(self) -> StartLimit:
        """As the contract reads it."""
        rate = parse_rate(self.rate)
        return StartLimit(rate.count, round(rate.per * 1_000_000))


class ThrottleConfig(_StartLimitConfig):
    """At most so many starts in a time; the others start later, in their order."""


class RateLimitConfig(_StartLimitConfig):
    """At most so many starts in a time; the others are dropped, with the reason."""


class CancelOnConfig(Model):
    """Events that cancel runs which were started for earlier ones."""

    types: Annotated[tuple[EventType, ...], Field(min_length=1, max_length=MOST_TYPES), OneOrMany()]
    """Types of events, or one; `*` stands for any characters."""
    where: Annotated[str, Field(min_length=1, max_length=WHERE_LENGTH), AfterValidator(read_filter)] | None = None
    """Only events for which this expression of CEL is true."""
    key: KeyExpression | None = None
    """Cancel only runs whose event has the same key."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(self, *, types: str | Sequence[str], where: str | None = ..., key: str | None = ...) -> None: ...


def check_flow(given: Sequence[str]) -> None:
    """Refuse options that do not go together, by the names of those that are given."""
    gathering = [name for name in _GATHERING if name in given]
    limiting = [name for name in _LIMITING if name in given]
    if len(gathering) > 1:
        raise refuse("debounce and batch both gather events for one run: give one of them")
    if len(limiting) > 1:
        raise refuse(f"{limiting[0]} and {limiting[1]} both decide when a run may start: give one of them")
    if gathering and limiting and limiting != ["throttle"]:
        raise refuse(
            f"{gathering[0]} with {limiting[0]} would drop all gathered events at once: use throttle, or one of them"
        )
