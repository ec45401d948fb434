"""Slots that are on time and in order, taken a few at once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from semel.contract.timing import Timing

_SECOND: Final = timedelta(seconds=1)


class SlotQueue:
    """Slots that are on time, in order; not listed before they are taken, since there may be very many."""

    def __init__(self, timing: Timing, spans: list[tuple[datetime, datetime]], only: datetime | None) -> None:
        self.spans = spans
        """Those that are left, as (after, until]."""
        self._timing = timing
        self._only = only

    def take(self, limit: int) -> list[datetime]:
        """Take the first ones."""
        if limit and self._only is not None:
            only, self._only, self.spans = self._only, None, []
            return [only]
        taken: list[datetime] = []
        while self.spans and len(taken) < limit:
            after, until = self.spans[0]
            found = self._timing.oldest(limit - len(taken), after, until)
            taken += found
            left = self._timing.next_slot(found[-1]) if found else None
            self.spans[:1] = [(found[-1], until)] if left is not None and left <= until else []
        return taken

    def take_newest(self) -> datetime | None:
        """Take the last one."""
        if self._only is not None:
            return self.take(1)[0]
        while self.spans:
            after, until = self.spans.pop()
            newest = self._timing.newest_slot(until)
            if newest is not None and newest > after:
                self.spans.append((after, newest - _SECOND))
                return newest
        return None
