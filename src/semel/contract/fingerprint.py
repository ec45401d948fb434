"""Is it the same request? A fingerprint of function name + canonical input, and a way to say what differs."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Final

import msgspec

_FORMAT: Final = b"semel-fingerprint-1\0"
_MOST: Final = 8


def fingerprint(name: str, payload: bytes) -> bytes:
    """16 bytes; `payload` is canonical JSON (sorted keys, no white space)."""
    hashing = _hash_of_name(name).copy()
    hashing.update(payload)
    return hashing.digest()


@lru_cache(maxsize=1000)
def _hash_of_name(name: str) -> hashlib.blake2b:
    """What all fingerprints of one function begin with. To be copied, never updated."""
    return hashlib.blake2b(_FORMAT + name.encode() + b"\0", digest_size=16)


def differences(stored: bytes, offered: bytes) -> dict[str, tuple[Any, Any]]:
    """Fields that differ, by path, with both values; at most eight, the first ones."""
    found: dict[str, tuple[Any, Any]] = {}
    _compare("", msgspec.json.decode(stored), msgspec.json.decode(offered), found)
    return found


def _compare(path: str, old: Any, new: Any, found: dict[str, tuple[Any, Any]]) -> None:
    if len(found) >= _MOST:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for field in sorted(old.keys() | new.keys()):
            inner = f"{path}.{field}" if path else field
            _compare(inner, old.get(field, ABSENT), new.get(field, ABSENT), found)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            _compare(f"{path}[{index}]", left, right, found)
    elif repr(old) != repr(new):  # as stored: 1, 1.0, True and -0.0 are four inputs
        found[path] = (old, new)


class _Stand:
    """Stands for a value that is not there to be shown."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


ABSENT: Final = _Stand("(absent)")
"""Stands for a field that one side does not have."""
NOT_KEPT: Final = _Stand("(not kept)")
"""Stands for a value of which only a hash was kept."""
