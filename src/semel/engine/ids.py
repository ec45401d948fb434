"""Execution ids: UUID version 7 as 32 hex digits, so that ids sort by the time they were made."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """48 bits of milliseconds, 12 bits of fraction, 62 random bits."""
    millis, rest = divmod(time.time_ns(), 1_000_000)
    fraction = (rest << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
    return f"{(millis << 80) | (7 << 76) | (fraction << 64) | (2 << 62) | random:032x}"
