"""Timers of a workflow that have not fired."""

from __future__ import annotations

from semel.flow.loop import Timer


class Timers:
    """By number; those that were cancelled are forgotten when someone looks."""

    def __init__(self) -> None:
        self._set: dict[int, Timer] = {}

    def add(self, timer: Timer) -> None:
        """One more."""
        self._set[timer.number] = timer

    def take(self, number: int) -> Timer | None:
        """The one that fires. None: there is none, or it was cancelled."""
        timer = self._set.pop(number, None)
        return None if timer is None or timer.cancelled() else timer

    def first(self) -> Timer | None:
        """The next to fire."""
        if not self._set:
            return None
        first = None
        for number, timer in list(self._set.items()):
            if timer.cancelled():
                del self._set[number]
            elif first is None or (timer.due, number) < (first.due, first.number):
                first = timer
        return first

    @property
    def due(self) -> int | None:
        """When the next one fires."""
        timer = self.first()
        return None if timer is None else timer.due
