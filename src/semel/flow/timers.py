"""Timers of a workflow that have not fired, among them its own deadline."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Final

from semel.flow.commands import Kind
from semel.flow.compare import same
from semel.flow.entries import Asked, IssuedCommand
from semel.flow.loop import Timer

FEW: Final = 64


class Timers:
    """By number, and in the order of their times; those that were cancelled are forgotten when they come first."""

    def __init__(self) -> None:
        self._set: dict[int, Timer] = {}
        self._order: list[tuple[int, int]] = []
        self._sweep_at = FEW

    def add(self, timer: Timer) -> None:
        """One more."""
        self._set[timer.number] = timer
        heapq.heappush(self._order, (timer.due, timer.number))
        if len(self._order) > self._sweep_at:
            self._sweep()

    def take(self, number: int) -> Timer | None:
        """The one that fires. None: there is none, or it was cancelled."""
        timer = self._set.pop(number, None)
        return None if timer is None or timer.cancelled() else timer

    def first(self) -> Timer | None:
        """The next to fire."""
        while self._order:
            number = self._order[0][1]
            timer = self._set.get(number)
            if timer is not None and not timer.cancelled():
                return timer
            heapq.heappop(self._order)
            self._set.pop(number, None)
        return None

    @property
    def due(self) -> int | None:
        """When the next one fires."""
        timer = self.first()
        return None if timer is None else timer.due

    def _sweep(self) -> None:
        """Cancelled timers may be due long after those that come and go before them."""
        self._set = {number: timer for number, timer in self._set.items() if not timer.cancelled()}
        self._order = [(timer.due, number) for number, timer in self._set.items()]
        heapq.heapify(self._order)
        self._sweep_at = FEW + 2 * len(self._order)


TIMEOUT: Final = "timeout"
"""Its name in the journal."""


def recorded_deadline(expected: deque[IssuedCommand] | None, deadline: int | None) -> tuple[int | None, str]:
    """What a run began with by what its journal `expected`, whatever its code says by now; and under which name."""
    if expected is None:
        return deadline, TIMEOUT
    first = expected[0] if expected else None
    if isinstance(first, Asked) and same(first, Kind.TIMER, TIMEOUT):
        return int(first.mark), TIMEOUT
    if isinstance(first, Asked) and same(first, Kind.TIMER, "") and first.mark == str(deadline):
        return deadline, ""  # as it was written before it had a name
    return None, TIMEOUT
