"""Types of fields that the models share: durations, instants, names, and lists that may be written as one value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function

from semel.contract.durations import format_duration, parse_duration
from semel.contract.keys import TEXT_LENGTH, check_key, check_name, check_text
from semel.contract.timing import to_utc
from semel.errors import InvalidKey, SemelError, phrase
from semel.triggers.ids import ACTIVITY_ID_LENGTH, EVENT_ID_LENGTH, TASK_TYPE_LENGTH, check_activity_id

SOURCE_LENGTH: Final = 1000
TYPE_LENGTH: Final = 255
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WHAT: Final = "value"


def _check_attribute(value: object, what: str, length: int, example: str) -> str:
    if isinstance(value, str) and not value.strip():
        raise InvalidKey(f"{what}={value!r} is blank: give a text such as {example!r}.")
    return check_key(value, what, length)


class Model(BaseModel):
    """A value that does not change and has no field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def refuse(message: str) -> PydanticCustomError:
    """A problem of a field, in our words."""
    return PydanticCustomError("semel", "{message}", {"message": message})


def checked(check: Callable[..., Any], *options: Any) -> Callable[[Any], Any]:
    """A validator of a check `(value, name, *options)` that raises Semel's own errors, which begin with that name.

    Pydantic names the field itself, so the name is left out.
    """

    def validate(value: Any) -> Any:
        try:
            return check(value, _WHAT, *options)
        except SemelError as error:
            raise refuse(phrase(error).removeprefix(f"{_WHAT}=")) from None

    return validate


def _read_time(value: object, what: str) -> datetime:
    """An aware datetime, or a text in the form of RFC 3339, in UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.upper())
        except ValueError:
            raise refuse(f"{value!r} is not a time: write it like '2026-03-01T09:00:00+01:00'") from None
    if isinstance(value, datetime) and value.utcoffset() is None:
        raise refuse(f"{value.isoformat()!r} has no time zone: add its offset, such as '+01:00' or 'Z'")
    try:
        return to_utc(value, what)
    except OverflowError:
        raise refuse(f"{value!s} is out of bounds in UTC") from None


def _read_instant(value: object, what: str) -> datetime:
    at = _read_time(value, what)
    return at.replace(microsecond=0) + _SECOND if at.microsecond else at


def _read_span(value: Any, what: str) -> timedelta:
    span = parse_duration(value, what)
    if span % _SECOND:
        raise refuse(f"{value!r}: use whole seconds")
    return span


def _read_positive_span(value: Any, what: str) -> timedelta:
    span = _read_span(value, what)
    if not span:
        raise refuse(f"{value!r}: use at least a second")
    return span


def _read_wait(value: Any, what: str) -> timedelta:
    span = parse_duration(value, what)
    if span % _MILLISECOND or not span:
        raise refuse(f"{value!r}: use whole milliseconds, at least one, such as '500ms' or '90s'")
    return span


class OneOrMany:
    """Makes a field of a tuple take a single value, too, as a tuple of that value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_before_validator_function(_as_tuple, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _format_instant(at: datetime) -> str:
    return at.isoformat()


_DURATION_SCHEMA: Final = {
    "anyOf": [{"type": "string", "examples": ["90s", "1h30m", "30d"]}, {"type": "integer", "minimum": 0}],
}
_WAIT_SCHEMA: Final = {
    "anyOf": [{"type": "string", "examples": ["500ms", "90s", "1h30m"]}, {"type": "number", "exclusiveMinimum": 0}],
}
_INSTANT_SCHEMA: Final = {"type": "string", "format": "date-time"}

Instant = Annotated[
    datetime,
    BeforeValidator(checked(_read_instant)),
    PlainSerializer(_format_instant, when_used="json"),
    WithJsonSchema(_INSTANT_SCHEMA),
]
"""A time in UTC and whole seconds. A fraction of a second is rounded up, a time without a zone is refused."""

EventTime = Annotated[
    datetime,
    BeforeValidator(checked(_read_time)),
    PlainSerializer(_format_instant, when_used="json"),
    WithJsonSchema(_INSTANT_SCHEMA),
]
"""A time in UTC, to the microsecond."""

Span = Annotated[
    timedelta,
    BeforeValidator(checked(_read_span)),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""A duration in whole seconds, written like "90s" or as a number of seconds."""

PositiveSpan = Annotated[
    timedelta,
    BeforeValidator(checked(_read_positive_span)),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""A duration of a second or more, in whole seconds."""

Wait = Annotated[
    timedelta,
    BeforeValidator(checked(_read_wait)),
    PlainSerializer(format_duration, when_used="json"),
    WithJsonSchema(_WAIT_SCHEMA),
]
"""A duration of a millisecond or more, in whole milliseconds: "500ms", or 0.5 for half a second."""

ActivityId = Annotated[
    str,
    BeforeValidator(checked(check_activity_id)),
    WithJsonSchema(
        {
            "type": "string",
            "maxLength": ACTIVITY_ID_LENGTH,
            "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.@+\-]*(:[A-Za-z0-9_][A-Za-z0-9_.@+\-]*)*$",
        }
    ),
]

_NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$"
TaskType = Annotated[
    str,
    BeforeValidator(checked(check_name, TASK_TYPE_LENGTH)),
    WithJsonSchema({"type": "string", "maxLength": TASK_TYPE_LENGTH, "pattern": _NAME_PATTERN}),
]
QueueName = Annotated[
    str,
    BeforeValidator(checked(check_name)),
    WithJsonSchema({"type": "string", "maxLength": 100, "pattern": _NAME_PATTERN}),
]
Text = Annotated[
    str,
    BeforeValidator(checked(check_text)),
    WithJsonSchema({"type": "string", "maxLength": TEXT_LENGTH}),
]
EventId = Annotated[
    str,
    BeforeValidator(checked(check_key, EVENT_ID_LENGTH)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": EVENT_ID_LENGTH}),
]
Source = Annotated[
    str,
    BeforeValidator(checked(_check_attribute, SOURCE_LENGTH, "/shop/payments")),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": SOURCE_LENGTH}),
]
Subject = Annotated[
    str,
    BeforeValidator(checked(_check_attribute, SOURCE_LENGTH, "invoice-17")),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": SOURCE_LENGTH}),
]
EventType = Annotated[
    str,
    BeforeValidator(checked(_check_attribute, TYPE_LENGTH, "invoice.paid")),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": TYPE_LENGTH}),
]
