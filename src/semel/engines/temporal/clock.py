"""Time inside a workflow of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from temporalio import workflow

SKIP: Final = "semel:skip"
"""The signal that moves the clock of one workflow forward by so many microseconds: tests do not wait for days."""

SKIPPED: Final = "semel.skipped"
"""The memo field that tells outside by how much a clock was moved."""


class Clock:
    """Workflow time, and waits that notice when it is moved."""

    def __init__(self) -> None:
        self.skipped = 0
        self.moves = 0

    def now(self) -> int:
        """Microseconds since 1970."""
        return workflow.time_ns() // 1000 + self.skipped

    def skip(self, micros: int) -> None:
        """Move on."""
        self.skipped += micros
        self.moves += 1
        workflow.upsert_memo({SKIPPED: self.skipped})

    async def until(self, due: int) -> None:
        """Wait for a time."""
        while (left := due - self.now()) > 0:
            try:
                await workflow.wait_condition(self._moved_since(self.moves), timeout=left / 1e6)
            except TimeoutError:
                return

    def _moved_since(self, seen: int) -> Callable[[], bool]:
        return lambda: self.moves != seen
