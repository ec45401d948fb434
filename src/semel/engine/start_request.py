"""A request for one execution, and the options it is run with; as bytes and back, without loss."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from semel.codec import Shape, decoder_of
from semel.contract.decision import Request, Reuse
from semel.errors import NotDecodable, phrase

VERSION: Final = 1
"""Of the format. A reader refuses a newer one instead of losing what it does not know."""


class RunOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How an execution is to be run. Requests for the same function mostly share one such object."""

    kind: str
    name: str
    queue: str
    priority: int
    reuse: Reuse
    max_attempts: int
    retention: timedelta
    window: timedelta
    delay: timedelta | None = None
    run_at: datetime | None = None
    timeout: timedelta | None = None
    """Of a workflow: a run keeps what it began with."""
    rate_limited: bool = False
    """The task has a rate limit of its own, besides its queue's."""
    keyed: bool = False
    """Requests carry a concurrency key."""
    foreign: bool = False
    """A workflow of other people's workers: `payload` is {"args": […]}, and it knows nothing of Semel."""


class StartRequest(Struct, gc=False):
    """A request for one execution. `id` is made by the caller, so that sending it twice is harmless."""

    id: str
    key: str | None
    payload: bytes
    fingerprint: bytes
    options: RunOptions
    concurrency_key: str | None = None
    root: str | None = None
    """What its effect keys are made of, where it has no key of its own."""
    parent: str | None = None
    """The execution of the workflow that asks for it."""
    on_parent_close: str | None = None
    """What becomes of it when that workflow ends: "cancel" or "terminate"; None: it goes on. Whoever performs the
    request for the workflow sees to it."""
    shape: Shape | None = None
    """Of the function, where it is known: an earlier release may have made another fingerprint of the same request.
    It is no data: whoever reads a request from bytes looks it up."""
    start_by: datetime | None = None
    """A run of a schedule that has not begun by then is dropped."""

    def contract_request(self) -> Request:
        """The part of the request that the contract decides about."""
        return Request(self.options.name, self.fingerprint, self.options.reuse, self.older_fingerprints)

    def older_fingerprints(self) -> Iterable[bytes]:
        """Other fingerprints that stand for the same request."""
        return () if self.shape is None else self.shape.older_fingerprints(self.options.name, self.payload)

    def asked_at(self, now: datetime) -> StartRequest:
        """The same request to be performed later: its delay begins now, and not when it is performed."""
        delay = self.options.delay
        if delay is None:
            return self
        return replace(self, options=replace(self.options, delay=None, run_at=now + delay))

    def to_bytes(self) -> bytes:
        """JSON with everything but the shape. It can be stored, and is not meant to be compared."""
        return msgspec.json.encode(
            _Stored(
                VERSION,
                self.id,
                Raw(self.payload),
                self.fingerprint,
                self.options,
                self.key,
                self.concurrency_key,
                self.root,
                self.parent,
                self.on_parent_close,
                self.start_by,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> StartRequest:
        """The request in some bytes. NotDecodable: they hold none, or one of a newer release."""
        try:
            found = _read(data)
        except msgspec.MsgspecError as error:
            raise NotDecodable(f"these bytes hold no request for an execution: {phrase(error)}.") from error
        if found.version > VERSION:
            raise NotDecodable(
                f"a request for an execution has the format {found.version}, and this Semel reads {VERSION}: it was "
                "made by a newer release. A worker of that release performs it."
            )
        return cls(
            found.id,
            found.key,
            bytes(found.payload),
            found.fingerprint,
            found.options,
            found.concurrency_key,
            found.root,
            found.parent,
            found.on_parent_close,
            start_by=found.start_by,
        )


class _Stored(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON of a request. The payload is in it as the JSON that it is; a field that is added needs a default."""

    version: int
    id: str
    payload: Raw
    fingerprint: bytes
    options: RunOptions = field(name="terms")
    key: str | None = None
    concurrency_key: str | None = None
    root: str | None = None
    parent: str | None = None
    on_parent_close: str | None = None
    start_by: datetime | None = None
    trace: dict[str, str] | None = None
    """In a row of an outbox, whose relay reads it."""


_read: Final = decoder_of(_Stored).decode
