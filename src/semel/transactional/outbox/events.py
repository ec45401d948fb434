"""Rows of the outbox: what each kind says, as JSON and back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct

from semel.codec import decoder_of
from semel.engine.protocol import Message
from semel.engine.start_request import VERSION, StartRequest
from semel.engine.subscriptions import Publication
from semel.errors import NotDecodable, phrase
from semel.transactional.statements import Row

START: Final = "semel.start"
SEND: Final = "semel.send"
SIGNAL: Final = "semel.signal"
CANCEL: Final = "semel.cancel"
PUBLISH: Final = "semel.publish"
TASK: Final = "semel.task"
WORKFLOW: Final = "semel.workflow"
EVENT: Final = "semel.event"
"""The last three are written by plain SQL: a function by its name, an event as JSON."""
TYPE_LENGTH: Final = 100
MAX_RETRIES: Final = 10
NULL: Final = Raw(b"null")
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class OutboxStatus(StrEnum):
    """What became of a row."""

    PENDING = "pending"
    PROCESSED = "processed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """A row of the outbox. A handler that is registered for its `event_type` is called with it."""

    id: int
    event_type: str
    aggregate_id: str | None
    payload: Any
    """As JSON data."""
    status: OutboxStatus
    retry_count: int
    max_retries: int
    last_error: str | None
    created_at: datetime
    processed_at: datetime | None
    namespace: str
    key: str | None
    execution_id: str | None
    """The execution that it started, or that was there under its key."""
    order_key: str | None
    on_failure: str
    """What becomes of later rows with its `order_key` if it fails for good: "hold" or "continue"."""
    next_attempt_at: datetime
    """When a relay may take it; while one has it, the end of its lease."""
    leased_by: str | None


class TakenRow(NamedTuple):
    """A row that a relay has taken: the event, and its payload as it is stored."""

    event: OutboxEvent
    payload: bytes


class RowOptions(NamedTuple):
    """What whoever writes rows says of them."""

    aggregate_id: str | None = None
    order_key: str | None = None
    on_failure: str = "hold"
    max_retries: int = MAX_RETRIES


class NewRow(NamedTuple):
    """A row to be written, in the order of the statement `add_events`."""

    namespace: str
    event_type: str
    aggregate_id: str | None
    payload: str
    key: str | None
    fingerprint: bytes | None
    order_key: str | None
    on_failure: str
    max_retries: int

    @property
    def is_own(self) -> bool:
        """Is it Semel's own, or one for a handler of the caller's?"""
        return self.event_type.startswith("semel.")


def read_row(row: Row) -> TakenRow:
    """A row of the table. One that cannot be read must not be in the way of others: it is given as far as it can."""
    values = list(row)
    payload = values[3] if isinstance(values[3], str) else bytes(values[3]).decode("utf-8", "replace")
    try:
        values[3] = msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        values[3] = payload
    values[4] = OutboxStatus(values[4])
    for at in (8, 9, 15):
        values[at] = None if values[at] is None else read_time(values[at])
    return TakenRow(OutboxEvent(*values), payload.encode("utf-8", "replace"))


def read_time(given: datetime | str) -> datetime:
    """A time of any of the databases, which all keep UTC. Plain SQL may have written something that is none."""
    try:
        at = datetime.fromisoformat(given) if isinstance(given, str) else given
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, TypeError, AttributeError, OverflowError):
        return LONG_AGO


# What rows say. `trace` is that of whoever wrote a row; see trace.py.


class _Message(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    start: Raw
    handler: str
    payload: Raw
    key: str | None
    trace: dict[str, str] | None = None


class _Signal(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    execution: str
    name: str
    key: str | None
    payload: Raw = NULL
    start: Raw = NULL
    trace: dict[str, str] | None = None


class _Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    execution: str
    start: Raw = NULL
    trace: dict[str, str] | None = None


class _Publication(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    version: int
    id: str
    envelope: Raw
    fingerprint: bytes
    delivery: int
    published_at: datetime
    deliver_at: datetime | None = None
    max_future: timedelta | None = None
    runs_after_failure: bool = False
    counts_for: timedelta | None = None
    trace: dict[str, str] | None = None


class PlainOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a start that is written by plain SQL."""

    queue: str | None = None
    task_queue: str | None = None
    """Of a workflow that workers other than Semel's run on a Temporal cluster."""
    priority: int | None = None
    reuse: str = "failed_only"
    delay: str | None = None
    run_at: datetime | None = None


class PlainStart(Struct, frozen=True, forbid_unknown_fields=True):
    """A start that is written by plain SQL: the name of a function, and its arguments by their names."""

    name: str
    arguments: Raw = Raw(b"{}")
    options: PlainOptions = PlainOptions()
    trace: dict[str, str] | None = None
    """The headers `traceparent` and `tracestate` of whoever wrote it."""


class _Version(Struct, frozen=True):
    version: int = 0


_read_version: Final = decoder_of(_Version).decode
_read_message: Final = decoder_of(_Message).decode
_read_signal: Final = decoder_of(_Signal).decode
_read_cancel: Final = decoder_of(_Cancel).decode
_read_publication: Final = decoder_of(_Publication).decode
_read_plain: Final = decoder_of(PlainStart).decode


def is_newer(payload: bytes) -> bool:
    """Was it written by a newer release than this one?"""
    try:
        return _read_version(payload).version > VERSION
    except msgspec.MsgspecError:
        return False


def row_of_start(namespace: str, request: StartRequest, options: RowOptions) -> NewRow:
    """A request for an execution, as it is. Without a key it goes by its id."""
    about = request.id if request.key is None else request.key
    return _new(namespace, START, request.to_bytes(), request.key, request.fingerprint, about, options)


def row_of_message(namespace: str, message: Message, options: RowOptions) -> NewRow:
    """A message to an entity."""
    start = Raw(message.start.to_bytes())
    data = msgspec.json.encode(_Message(VERSION, start, message.name, Raw(message.payload), message.key))
    return _new(namespace, SEND, data, message.key, None, message.start.key, options)


def row_of_signal(
    namespace: str,
    execution: str,
    start: StartRequest | None,
    name: str,
    payload: bytes | None,
    key: str,
    options: RowOptions,
) -> NewRow:
    """A signal to an execution, or to what a request will have started."""
    data = msgspec.json.encode(
        _Signal(VERSION, execution, name, key, NULL if payload is None else Raw(payload), _raw(start))
    )
    return _new(namespace, SIGNAL, data, key, None, execution if start is None else start.key, options)


def row_of_cancel(namespace: str, execution: str, start: StartRequest | None, options: RowOptions) -> NewRow:
    """The wish that an execution, or what a request will have started, is cancelled."""
    data = msgspec.json.encode(_Cancel(VERSION, execution, _raw(start)))
    return _new(namespace, CANCEL, data, None, None, execution if start is None else start.key, options)


def row_of_publication(namespace: str, one: Publication, options: RowOptions) -> NewRow:
    """An event."""
    data = msgspec.json.encode(
        _Publication(
            VERSION,
            one.id,
            Raw(one.envelope),
            one.fingerprint,
            one.delivery,
            one.published_at,
            one.deliver_at,
            one.max_future,
            one.runs_after_failure,
            one.counts_for,
        )
    )
    return _new(namespace, PUBLISH, data, one.id, one.fingerprint, one.id, options)


def _raw(start: StartRequest | None) -> Raw:
    return NULL if start is None else Raw(start.to_bytes())


def _new(
    namespace: str,
    type: str,
    data: bytes,
    key: str | None,
    fingerprint: bytes | None,
    about: str | None,
    options: RowOptions,
) -> NewRow:
    aggregate = about if options.aggregate_id is None else options.aggregate_id
    return NewRow(
        namespace,
        type,
        aggregate,
        data.decode(),
        None if key is None else key.strip(),
        fingerprint,
        options.order_key,
        options.on_failure,
        options.max_retries,
    )


def message_in(payload: bytes) -> Message:
    """The message of a row."""
    found = _decode(_read_message, payload)
    return Message(StartRequest.from_bytes(bytes(found.start)), found.handler, bytes(found.payload), found.key)


def signal_in(payload: bytes) -> tuple[str, StartRequest | None, str, bytes | None, str | None]:
    """The signal of a row: execution or request, name, payload, key."""
    found = _decode(_read_signal, payload)
    data = None if bytes(found.payload) == bytes(NULL) else bytes(found.payload)
    return found.execution, _start_in(found.start), found.name, data, found.key


def cancel_in(payload: bytes) -> tuple[str, StartRequest | None]:
    """What a row wants cancelled."""
    found = _decode(_read_cancel, payload)
    return found.execution, _start_in(found.start)


def publication_in(payload: bytes) -> Publication:
    """The event of a row."""
    from semel.engine.publications import read_event

    found = _decode(_read_publication, payload)
    envelope = bytes(found.envelope)
    return Publication(
        read_event(envelope),
        found.id,
        envelope,
        found.fingerprint,
        found.delivery,
        found.published_at,
        found.deliver_at,
        found.max_future,
        found.runs_after_failure,
        found.counts_for,
    )


def plain_start_in(payload: bytes) -> PlainStart:
    """A start that plain SQL has written."""
    found: PlainStart = _decode(_read_plain, payload)
    return found


def request_id(row: TakenRow) -> str:
    """The id of a request that plain SQL has written: made of the row, so that it is the same at every try.

    It has the form of other ids (UUID version 7), with the time of the row.
    """
    at = row.event.created_at
    seed = f"{row.event.namespace}\0{row.event.id}\0{at.isoformat()}\0{row.event.key}\0".encode() + row.payload
    noise = hashlib.sha256(seed).hexdigest()
    return f"{int(at.timestamp() * 1000):012x}7{noise[:3]}{'89ab'[int(noise[3], 16) & 3]}{noise[4:19]}"


def _start_in(data: Raw) -> StartRequest | None:
    return None if bytes(data) == bytes(NULL) else StartRequest.from_bytes(bytes(data))


def _decode(read: Any, payload: bytes) -> Any:
    try:
        return read(payload)
    except msgspec.MsgspecError as error:
        raise NotDecodable(f"the payload of this row cannot be read: {phrase(error)}.") from error
