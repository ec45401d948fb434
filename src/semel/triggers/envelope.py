"""Events as they enter: an envelope that is compatible with CloudEvents 1.0, and its JSON form (structured mode)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeVar

import msgspec
from pydantic import BeforeValidator, Field, JsonValue, model_validator

from semel.contract.keys import check_key
from semel.errors import InvalidValue, SemelError, phrase
from semel.triggers.fields import SOURCE_LENGTH, EventId, EventTime, EventType, Model, Source, Subject, checked, refuse
from semel.triggers.problems import validate

SPEC_VERSION: Final = "1.0"
JSON_TYPE: Final = "application/json"
CLOUDEVENTS_TYPE: Final = "application/cloudevents+json"
"""The media type of an event in structured mode."""

_ATTRIBUTE: Final = re.compile(r"[a-z0-9]{1,100}")
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+\-]+/[\w!#$&^.+\-]+\s*(?:;.*)?", re.ASCII)
_OWN: Final = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data", "data_base64"}
)
_INT32: Final = 1 << 31


def _read_media_type(value: object, _: str) -> str:
    if not isinstance(value, str) or not _MEDIA_TYPE.fullmatch(value) or not value.isprintable():
        raise refuse(f"{value!r} is not a media type, such as 'application/json'")
    return value


def _read_schema_uri(value: object, what: str) -> str:
    return check_key(value, what, SOURCE_LENGTH)


def _read_base64(value: object, _: str) -> str:
    try:
        if isinstance(value, str):
            base64.b64decode(value, validate=True)
            return value
    except (binascii.Error, ValueError):
        pass
    raise refuse("this is not base64")


def _read_extensions(value: object) -> object:
    if not isinstance(value, Mapping):
        raise refuse(f"{value!r}: give a table of attributes")
    for name, content in value.items():
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name):
            raise refuse(f"{name!r} cannot be the name of an attribute: use lower-case letters and digits only")
        if name in _OWN:
            raise refuse(f"{name!r} is an attribute of every event: it cannot be an extension")
        if isinstance(content, bool) or (isinstance(content, str) and content):
            continue
        if not isinstance(content, int) or not -_INT32 <= content < _INT32:
            raise refuse(f"{name}={content!r}: an extension is a text, a whole number of 32 bits, true or false")
    return dict(value)


class EventEnvelope(Model):
    """An event: what happened, where, and an id under which it counts once."""

    event_id: EventId
    """The same for every delivery of the event, and for no other event."""
    source: Source
    """Where it happened: a URI or a name, such as `/shop/payments`."""
    type: EventType
    """What happened, such as `invoice.paid`."""
    subject: Subject | None = None
    """What it happened to, within its source."""
    time: EventTime | None = None
    """When it happened, with a time zone."""
    data: JsonValue = None
    """The particulars, as JSON."""
    data_base64: Annotated[str, BeforeValidator(checked(_read_base64))] | None = None
    """The particulars in base64, if they are not JSON."""
    datacontenttype: Annotated[str, BeforeValidator(checked(_read_media_type))] = JSON_TYPE
    """The media type of the particulars."""
    dataschema: Annotated[str, BeforeValidator(checked(_read_schema_uri))] | None = None
    """A URI of the schema of the particulars."""
    extensions: Annotated[dict[str, bool | int | str], BeforeValidator(_read_extensions)] = Field(default_factory=dict)
    """Further attributes of a CloudEvent, such as `traceparent`."""

    if TYPE_CHECKING:  # what validation takes is more than what the fields hold

        def __init__(
            self,
            *,
            event_id: str,
            source: str,
            type: str,
            subject: str | None = ...,
            time: datetime | str | None = ...,
            data: Any = ...,
            data_base64: str | None = ...,
            datacontenttype: str = ...,
            dataschema: str | None = ...,
            extensions: Mapping[str, bool | int | str] = ...,
        ) -> None: ...

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        if self.data is not None and self.data_base64 is not None:
            raise refuse("it has both data and data_base64: give one of them")
        return self

    @classmethod
    def from_cloudevent(cls, event: Mapping[str, Any] | str | bytes) -> Self:
        """Read a CloudEvent in JSON, structured mode. Raises InvalidValue that says what is wrong with it.

        Its `event_id` is `{source}#{id}`, since ids count within a source; a `#` in the source is written `%23`.
        """
        attributes = event if isinstance(event, Mapping) else load_json(event)
        if not isinstance(attributes, Mapping):
            raise InvalidValue(f"a CloudEvent is a JSON object, not {type(attributes).__name__}.")
        return read_attributes(attributes, cls)

    def to_cloudevent(self) -> dict[str, JsonValue]:
        """The event as a CloudEvent in JSON, structured mode; an `event_id` that names its source goes without it."""
        dumped = self.model_dump(mode="json", exclude_none=True, exclude={"event_id", "extensions"})
        id = self.event_id.removeprefix(source_prefix(self.source)) or self.event_id
        if self.data is None:
            dumped.pop("datacontenttype" if self.data_base64 is None else "data", None)
        return {"specversion": SPEC_VERSION, "id": id, **dumped, **self.extensions}


E = TypeVar("E", bound=EventEnvelope)


def read_attributes(event: Mapping[str, Any], kind: type[E]) -> E:
    """Make an envelope of the attributes of a CloudEvent, as they are in its JSON."""
    attributes = dict(event)
    version = attributes.pop("specversion", None)
    if version != SPEC_VERSION:
        raise InvalidValue(f"a CloudEvent of specversion={version!r}: only {SPEC_VERSION!r} can be read.")
    try:
        id = check_key(attributes.pop("id", None), "id", SOURCE_LENGTH)
        source = check_key(attributes.get("source"), "source", SOURCE_LENGTH)
    except SemelError as error:
        raise InvalidValue(f"a CloudEvent needs an id and a source: {phrase(error)}.") from error
    known = {name: value for name, value in attributes.items() if name in _OWN and value is not None}
    extensions = {name: value for name, value in attributes.items() if name not in _OWN and value is not None}
    event_id = f"{source_prefix(source)}{id}"
    return validate(kind, {**known, "event_id": event_id, "extensions": extensions}, f"event {event_id!r}")


def source_prefix(source: str) -> str:
    """What the `event_id` of a CloudEvent begins with: its source and `#`; a `#` in the source is written `%23`."""
    return f"{source.replace('#', '%23')}#"


def load_json(text: str | bytes, what: str = "a CloudEvent") -> Any:
    """Read JSON. Raises InvalidValue that begins with `what`."""
    try:
        return msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise InvalidValue(f"{what} that is not JSON: {phrase(error)}.") from error
