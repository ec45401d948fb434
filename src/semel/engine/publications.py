"""Events that are published: checked and encoded at the door, and read again from what is stored."""

from __future__ import annotations

import functools
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from semel.codec import encode
from semel.contract.fingerprint import differences, fingerprint
from semel.engine.conflicts import describe_differences
from semel.engine.subscriptions import Publication
from semel.errors import InvalidValue, KeyConflict, NotDecodable, phrase
from semel.settings import Settings
from semel.triggers.ids import event_part
from semel.triggers.patterns import matches

if TYPE_CHECKING:
    from semel.triggers.cloudevents import IncomingEvent
    from semel.triggers.envelope import EventEnvelope
    from semel.triggers.event_source import EventSource


def make_publication(
    settings: Settings, event: Any, source: EventSource | None, deliver_at: datetime | None, now: datetime
) -> Publication:
    """An event that somebody publishes. InvalidValue, NotEncodable, PayloadTooLarge: what is wrong with it."""
    envelope_type, incoming_type, source_type = _models()
    named_by_content = False
    if isinstance(event, incoming_type):
        event, named_by_content = event.event, event.id_origin == "content"
    if not isinstance(event, envelope_type):
        raise InvalidValue(
            f"{event!r} is no event: publish a semel.EventEnvelope(event_id=…, source=…, type=…, data=…). A CloudEvent "
            "is read with semel.EventEnvelope.from_cloudevent(…)."
        )
    if source is not None and not matches(source.source, event.source):
        raise InvalidValue(f"event {event.event_id!r} comes from {event.source!r}, not from {source.source!r}.")
    if deliver_at is not None:
        if not isinstance(deliver_at, datetime) or deliver_at.utcoffset() is None:
            raise InvalidValue(f"deliver_at={deliver_at!r}: give a datetime with a time zone.")
        deliver_at = deliver_at.astimezone(UTC)
    envelope = encode(_dump(event, envelope_type), "event", limit=settings.max_payload)
    return Publication(
        event=event,
        id=event_part(event.event_id),
        envelope=envelope,
        fingerprint=fingerprint("event", envelope),
        delivery=random.getrandbits(62),
        published_at=now,
        deliver_at=deliver_at,
        max_future=None if source is None else source.max_future,
        runs_after_failure=source is not None and source.reuse == "failed_only",
        counts_for=(source or source_type(name="any")).hash_window if named_by_content else None,
    )


def _dump(event: EventEnvelope, own: type[EventEnvelope]) -> dict[str, Any]:
    """An event as JSON: what `model_dump(mode="json", exclude_none=True)` gives, which takes three times as long."""
    if type(event) is not own:
        return event.model_dump(mode="json", exclude_none=True)
    dumped = {name: value for name, value in event.__dict__.items() if value is not None}
    if event.time is not None:
        dumped["time"] = event.time.isoformat()
    return dumped


@functools.cache
def _models() -> tuple[type[EventEnvelope], type[IncomingEvent], type[EventSource]]:
    """The models of events, imported where the first one is published: Pydantic takes a while."""
    from semel.triggers.cloudevents import IncomingEvent
    from semel.triggers.envelope import EventEnvelope
    from semel.triggers.event_source import EventSource

    return EventEnvelope, IncomingEvent, EventSource


def read_event(envelope: bytes) -> EventEnvelope:
    """An event from what is stored of it. NotDecodable: a newer release has written it."""
    from semel.triggers.envelope import EventEnvelope

    try:
        return EventEnvelope.model_validate_json(envelope)
    except ValueError as error:
        raise NotDecodable(f"the event cannot be read: {phrase(error)}.") from error


def read_publication(id: str, envelope: bytes, now: datetime) -> Publication:
    """A recorded event that is to be routed now."""
    return Publication(read_event(envelope), id, envelope, b"", 0, now)


def find_conflict(publication: Publication, stored: bytes) -> KeyConflict | None:
    """The error for an event whose id stands for another one; None: it is the same event, sent in another way.

    Deliveries mostly are the same bytes. Only where they are not, it is looked at what an event says.
    """
    from semel.triggers.cloudevents import content_fingerprint

    if content_fingerprint(publication.event) == content_fingerprint(read_event(stored)):
        return None
    found = differences(stored, publication.envelope)
    id_ = publication.event.event_id
    return KeyConflict(
        f"event {id_!r} was published before with other content ({describe_differences(found)}). Give a new event a "
        f"new event_id, or see: semel events show {publication.id}",
        existing_execution_id="",
        status="",
        differences=found,
    )
