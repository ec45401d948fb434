"""CloudEvents 1.0 as they come in: one or a batch in JSON, or in the headers and the body of an HTTP request.

Whatever is wrong with them is an InvalidValue that says what and where. An event that comes without an id gets one from
its content or by the rule of its source, never a random one: it would run again with each delivery.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote_to_bytes

from semel.codec import encode
from semel.contract.fingerprint import differences, fingerprint
from semel.contract.keys import check_key
from semel.errors import InputError, InvalidValue, phrase
from semel.triggers.envelope import CLOUDEVENTS_TYPE, EventEnvelope, load_json, read_attributes, source_prefix
from semel.triggers.event_source import EventSource
from semel.triggers.fields import SOURCE_LENGTH

BATCH_TYPE: Final = "application/cloudevents-batch+json"
"""The media type of a list of events."""
MOST_IN_BATCH: Final = 10_000
HOP_EXTENSIONS: Final = frozenset({"traceparent", "tracestate", "recordedtime", "knativearrivaltime"})
"""Extensions that those who pass an event on may change: they do not make it another event."""

IdOrigin = Literal["producer", "rule", "content"]
"""Who named an event: its producer, the rule of its source, or nobody, so that its content has to."""

_JSON_MEDIA: Final = re.compile(r"(?:application|text)/json|[^/]+/[^/]+\+json")
_PREFIX: Final = "ce-"
_FINGERPRINT_NAME: Final = "semel.event"


@dataclass(frozen=True, slots=True)
class IncomingEvent:
    """An event, and who named it: one that was named by its content counts for the `hash_window` of its source only."""

    event: EventEnvelope
    id_origin: IdOrigin


def read_event(body: Mapping[str, Any] | str | bytes, source: EventSource | None = None) -> IncomingEvent:
    """Read an event in JSON, structured mode."""
    attributes = dict(body) if isinstance(body, Mapping) else load_json(body)
    return _receive(attributes, {}, source)


def read_batch(body: Iterable[Any] | str | bytes, source: EventSource | None = None) -> list[IncomingEvent]:
    """Read a list of events in JSON: all, or none and an error that names the index of the first wrong one."""
    loaded = load_json(body) if isinstance(body, str | bytes) else body
    if not isinstance(loaded, list | tuple):
        raise InvalidValue(f"a batch of CloudEvents is a JSON array, not {type(loaded).__name__}.")
    if len(loaded) > MOST_IN_BATCH:
        raise InvalidValue(f"a batch of {len(loaded):,} events: send at most {MOST_IN_BATCH:,} at once.")
    found = []
    for index, one in enumerate(loaded):
        try:
            found.append(_receive(one, {}, source))
        except InvalidValue as error:
            raise InvalidValue(f"event {index} of {len(loaded)}: {phrase(error)}.") from error
    return found


def read_http(
    headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes, source: EventSource | None = None
) -> list[IncomingEvent]:
    """Read what an HTTP request brings: an event in its headers and body, or one or a batch of them in JSON."""
    named = _fold_headers(headers)
    content_type = named.get("content-type", "").strip()
    media = content_type.partition(";")[0].strip().lower()
    if media.startswith("application/cloudevents"):
        _check_charset(content_type)
        if media == BATCH_TYPE:
            return read_batch(body, source)
        if media == CLOUDEVENTS_TYPE:
            return [_receive(load_json(body), named, source)]
        raise InvalidValue(f"content-type {media!r}: use {CLOUDEVENTS_TYPE!r} or {BATCH_TYPE!r}; only JSON is read.")
    if f"{_PREFIX}specversion" not in named:
        raise InvalidValue(
            f"a request without the header 'ce-specversion' and of content-type {media!r} holds no CloudEvent: send "
            f"its attributes in headers 'ce-…', or the whole event as {CLOUDEVENTS_TYPE!r}."
        )
    return [_receive(_read_binary(named, content_type, media, body), named, source)]


def content_fingerprint(event: EventEnvelope) -> bytes:
    """16 bytes that differ if two events with one id are not the same event, however they were sent."""
    return fingerprint(_FINGERPRINT_NAME, _content(event))


def differing_fields(old: EventEnvelope, new: EventEnvelope) -> list[str]:
    """The paths of what differs between two events, such as `data.cents`: at most eight, the first ones."""
    return list(differences(_content(old), _content(new)))


def _content(event: EventEnvelope) -> bytes:
    dumped = event.model_dump(mode="json", exclude={"event_id", "extensions"}, exclude_none=True)
    if "data" not in dumped and "data_base64" not in dumped:
        del dumped["datacontenttype"]  # it says nothing where there is no data
    # In headers every extension is a text: 2 and "2", true and "true" are the same event, sent in two ways.
    extensions = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in event.extensions.items()
        if name not in HOP_EXTENSIONS
    }
    return encode({**dumped, "extensions": extensions}, f"event {event.event_id!r}")


def _receive(given: Any, headers: Mapping[str, str], source: EventSource | None) -> IncomingEvent:
    if not isinstance(given, Mapping):
        raise InvalidValue(f"a CloudEvent is a JSON object, not {type(given).__name__}.")
    attributes = {name: value for name, value in given.items() if value is not None}
    origin: IdOrigin = "producer"
    if "id" not in attributes:
        found = _id_by_rule(source, headers, attributes.get("data"))
        origin = "rule" if found is not None else "content"
        attributes["id"] = found if found is not None else "by-content"
    try:
        event = read_attributes(attributes, EventEnvelope)
        _content(event)  # so that what cannot be stored as JSON is refused here
        if origin == "content":
            event = event.model_copy(update={"event_id": f"{source_prefix(event.source)}{_hash_content(event)}"})
        return IncomingEvent(event, origin)
    except InvalidValue:
        raise
    except InputError as error:
        raise InvalidValue(f"{phrase(error)}.") from error


def _hash_content(event: EventEnvelope) -> str:
    """An id that every delivery of the same event gets: a hash of what it says."""
    said = [event.source, event.type, event.subject, event.time and event.time.isoformat(), event.data]
    hashed = encode([*said, event.data_base64], "the event")
    return f"sha256:{hashlib.sha256(hashed).hexdigest()}"


def _id_by_rule(source: EventSource | None, headers: Mapping[str, str], data: Any) -> str | None:
    if source is None or source.id_from is None:
        return None
    if source.id_from.startswith("header:"):
        found: Any = headers.get(source.id_from.removeprefix("header:").lower())
    else:
        found = data
        for part in source.id_from.split(".")[1:]:
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        return None
    try:
        return check_key(str(found), f"the id by {source.id_from!r}", SOURCE_LENGTH)
    except InputError as error:
        raise InvalidValue(f"{phrase(error)}.") from error


def _fold_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    folded: dict[str, str] = {}
    for name, value in headers.items() if isinstance(headers, Mapping) else headers:
        lower = name.lower()
        if lower in folded and (lower.startswith(_PREFIX) or lower == "content-type"):
            raise InvalidValue(f"the header {lower!r} comes twice: send it once.")
        folded[lower] = value
    return folded


def _read_binary(headers: Mapping[str, str], content_type: str, media: str, body: bytes) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in headers.items():
        if name.startswith(_PREFIX):
            attribute = name.removeprefix(_PREFIX)
            if attribute in ("data", "data_base64", "datacontenttype"):
                raise InvalidValue(f"the header {name!r}: data is the body, and its type the header 'content-type'.")
            attributes[attribute] = _decode_header(name, value)
    if content_type:
        attributes["datacontenttype"] = content_type
    if not body:
        return attributes
    if _JSON_MEDIA.fullmatch(media):
        _check_charset(content_type)
        attributes["data"] = load_json(body, "the body")
        return attributes
    attributes.setdefault("datacontenttype", "application/octet-stream")
    try:
        if media.startswith("text/"):
            attributes["data"] = body.decode()
            return attributes
    except UnicodeDecodeError:
        pass
    attributes["data_base64"] = base64.b64encode(body).decode()
    return attributes


def _decode_header(name: str, value: str) -> str:
    """The value of an attribute in a header: perhaps in quotes; `%` and two digits are a byte."""
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value.encode()).decode()
    except UnicodeError:
        raise InvalidValue(
            f"the header {name!r} is not UTF-8, written with '%' and two digits for each byte."
        ) from None


def _check_charset(content_type: str) -> None:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8", "us-ascii"):
            raise InvalidValue(f"content-type {content_type!r}: JSON is in UTF-8.")
