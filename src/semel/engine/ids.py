"""Execution ids: UUID version 7 as 32 hex digits, so that ids sort by the time they were made."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Final

_dice: Final[deque[bytes]] = deque()
"""Random bytes drawn in advance: asking the kernel for each id costs more than all the rest."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_dice.clear)  # parent and child must not draw the same ones


def new_id() -> str:
    """48 bits of milliseconds, 12 bits of fraction, 62 random bits."""
    millis, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random = int.from_bytes(_draw(), "big") & ((1 << 62) - 1)
    return f"{(millis << 80) | (7 << 76) | (fraction << 64) | (2 << 62) | random:032x}"


def _draw() -> bytes:
    try:
        return _dice.pop()
    except IndexError:
        fresh = os.urandom(4096)
        _dice.extend(fresh[at : at + 8] for at in range(0, 4096, 8))
        return os.urandom(8)
