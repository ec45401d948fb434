"""A request for one execution as bytes, for whoever is to perform it somewhere else: no field of it can be lost."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from semel.codec import decoder_of
from semel.engine.protocol import Start, Terms
from semel.errors import NotDecodable, phrase

VERSION: Final = 1
"""Of the format. A reader refuses a newer one instead of losing what it does not know."""


class StartRequest(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A `Start` with its terms, and on whose behalf it is asked for.

    The terms are stored as they are, so that a new one is carried without a line of code here. The shape of a function
    is no data: whoever reads the request looks it up.
    """

    version: int
    id: str
    payload: Raw
    fingerprint: bytes
    terms: Terms
    key: str | None = None
    concurrency_key: str | None = None
    root: str | None = None
    parent: str | None = None
    """The execution of the workflow that asks for it."""
    on_parent_close: str | None = None
    """What becomes of it when that workflow ends: "cancel" or "terminate"; None: it goes on."""

    @classmethod
    def of(
        cls, start: Start, asked_at: datetime, parent: str | None = None, on_parent_close: str | None = None
    ) -> StartRequest:
        """A request as it stands at the time it was asked for: a delay begins then, not when it is performed."""
        terms = start.terms
        if terms.delay is not None:
            terms = replace(terms, delay=None, run_at=asked_at + terms.delay)
        return cls(
            VERSION,
            start.id,
            Raw(start.payload),
            start.fingerprint,
            terms,
            start.key,
            start.concurrency_key,
            start.root,
            parent,
            on_parent_close,
        )

    def start(self, id: str | None = None) -> Start:
        """The request again; another `id`, where performing it twice is to be harmless."""
        return Start(
            self.id if id is None else id,
            self.key,
            bytes(self.payload),
            self.fingerprint,
            self.terms,
            self.concurrency_key,
            self.root,
        )

    def to_bytes(self) -> bytes:
        """Canonical enough to be stored, not to be compared."""
        return msgspec.json.encode(self)


_read: Final = decoder_of(StartRequest).decode


def from_bytes(data: bytes) -> StartRequest:
    """The request in some bytes. NotDecodable: they hold none, or one of a newer release."""
    try:
        found = _read(data)
    except msgspec.MsgspecError as error:
        raise NotDecodable(f"these bytes hold no request for an execution: {phrase(error)}.") from error
    if found.version > VERSION:
        raise NotDecodable(
            f"a request for an execution has the format {found.version}, and this Semel reads {VERSION}: it was made "
            "by a newer release. A worker of that release performs it."
        )
    return found
