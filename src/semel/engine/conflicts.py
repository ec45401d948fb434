"""A key that stands for something else: what differs, as an error and as a journal holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from semel.codec import Shape, decoder_of
from semel.contract.decision import Prior, Reason
from semel.contract.fingerprint import ABSENT, differences
from semel.contract.lifecycle import Status
from semel.errors import KeyConflict

LONGEST: Final = 10_000
"""Bytes of a value in a journal; of a longer one only its beginning is kept, as text."""


def conflict(
    key: str, name: str, prior: Prior, reason: Reason, stored: bytes | None, offered: bytes, shape: Shape | None = None
) -> KeyConflict:
    """The error for a request. `stored` is the input of the one that has the key, None where it is not kept.

    With the `shape` of the function, arguments that were left out are told by their defaults.
    """
    found: dict[str, tuple[Any, Any]] = {}
    if reason is Reason.FUNCTION_DIFFERS:
        what = f"of another function ({prior.name} -> {name})"
    else:
        if stored is not None:
            if shape is not None:
                stored, offered = shape.show_defaults(stored), shape.show_defaults(offered)
            found = differences(stored, offered)
        fields = describe_differences(found)
        unknown = "its stored input is past its retention" if stored is None else "the default of a parameter changed"
        what = f"with other input ({fields or unknown})"
    return KeyConflict(
        f"key {key!r} already started execution {prior.id} {what}. Use a new key, or see: semel explain {key}",
        existing_execution_id=prior.id,
        status=prior.status,
        differences=found,
    )


def describe_differences(found: Mapping[str, tuple[Any, Any]]) -> str:
    """The fields that differ, each with the beginning of both values."""
    return ", ".join(f"{path}: {_brief(old)} -> {_brief(new)}" for path, (old, new) in found.items())


class _Told(Struct, frozen=True):
    status: Status
    differences: dict[str, tuple[list[Any], list[Any]]] = field(default_factory=dict)
    """A value is a list of one; nothing is in it where a side does not have the field."""


_read: Final = decoder_of(_Told).decode


def dump(error: KeyConflict) -> bytes:
    """What a journal keeps of it, beside its message and the execution that has the key."""
    kept = {path: (_kept(old), _kept(new)) for path, (old, new) in error.differences.items()}
    return msgspec.json.encode(_Told(Status(error.status), kept))


def load(message: str, execution: str | None, data: bytes | None) -> KeyConflict:
    """The error again; without data, from a journal that has no more than its message."""
    told = _Told(Status.PENDING) if data is None else _read(data)
    found = {path: (_value(old), _value(new)) for path, (old, new) in told.differences.items()}
    return KeyConflict(message, existing_execution_id=execution or "", status=told.status, differences=found)


def _kept(value: Any) -> list[Any]:
    if value is ABSENT:
        return []
    return [value if len(msgspec.json.encode(value)) <= LONGEST else _brief(value)]


def _value(kept: list[Any]) -> Any:
    return kept[0] if kept else ABSENT


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
