"""Execution ids: UUID version 7 as 32 hex digits, so that ids sort by the time they were made."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final

_dice: Final[deque[str]] = deque()
"""Random halves drawn in advance: asking the kernel for each id costs more than all the rest."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_dice.clear)  # parent and child must not draw the same ones


def new_id() -> str:
    """48 bits of milliseconds, 12 bits of fraction, 62 random bits; version and variant as the standard says."""
    millis, rest = divmod(time.time_ns(), 1_000_000)
    return f"{millis:012x}7{(rest << 12) // 1_000_000:03x}{_draw()}"


def _draw() -> str:
    try:
        return _dice.pop()
    except IndexError:
        fresh = os.urandom(4096)
        halves = [int.from_bytes(fresh[at : at + 8], "big") for at in range(0, 4096, 8)]
        _dice.extend(f"{half & ((1 << 62) - 1) | (2 << 62):016x}" for half in halves[1:])
        return f"{halves[0] & ((1 << 62) - 1) | (2 << 62):016x}"
