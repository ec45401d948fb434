"""Execution ids: UUID version 7 as 32 hex digits, so that ids sort by the time they were made."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final

_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_dice: Final[deque[str]] = deque()
"""Random halves drawn in advance: asking the kernel for each id costs more than all the rest."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_dice.clear)  # parent and child must not draw the same ones


def new_id() -> str:
    """48 bits of milliseconds, 12 bits of fraction, 62 random bits; version and variant as the standard says."""
    millis, rest = divmod(time.time_ns(), 1_000_000)
    try:
        half = _dice.pop()
    except IndexError:
        half = _draw()
    return f"{(millis << 16) + 0x7000 + (rest << 12) // 1_000_000:016x}{half}"


def made_at(id: str) -> int | None:
    """When an id was made, in milliseconds since 1970; None: by other rules."""
    if len(id) != 32 or id[12] != "7":
        return None
    try:
        return int(id[:12], 16)
    except ValueError:
        return None


def _draw() -> str:
    """Fill the pool and take one: each begins with a random one of the digits of the variant."""
    fresh = os.urandom(4096).hex()
    _dice.extend(_VARIANT[fresh[at]] + fresh[at + 1 : at + 16] for at in range(0, len(fresh), 16))
    return _dice.pop()
