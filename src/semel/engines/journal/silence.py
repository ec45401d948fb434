"""Since when an engine has been silent that was asked and answered in the end: slots missed meanwhile are not late."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from semel.contract.slot_policy import LEAST_GRACE
from semel.contract.times import micros

SILENT: Final = 5.0
"""Seconds without an answer after which an engine counts as down since it was asked."""


class Silence(NamedTuple):
    """What somebody who asks knows of the time before the answer."""

    down_for: int
    """So many microseconds before it was asked, the engine had ceased to answer; 0: it had not."""
    asked_at: float
    """By the monotonic clock, in seconds."""

    def measure(self) -> int:
        """The answer is there: since how many microseconds the engine was down; 0: it was not.

        What fired within the least grace before it was asked would have been on time.
        """
        waited = time.monotonic() - self.asked_at
        if self.down_for:
            return self.down_for + round(waited * 1e6)
        return round(waited * 1e6) + micros(LEAST_GRACE) if waited > SILENT else 0
