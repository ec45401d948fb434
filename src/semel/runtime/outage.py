"""A database or cluster that does not answer a worker: one line when it is lost, one when it is back."""

from __future__ import annotations

import logging
import time
from typing import Final

from semel.errors import phrase

log = logging.getLogger("semel.worker")
LATE: Final = 5.0
"""Seconds for which failures count as those of an outage that is over."""


class Outage:
    """Gathers what the parts of one worker notice of an outage. Each part tells when it fails and when it is through.

    The first that fails is logged as a warning, and when none fails any more, that the engine answers again. What the
    others notice, and every further try, is logged for DEBUG only.
    """

    def __init__(self, engine: str, worker: str) -> None:
        self._engine = engine
        self._worker = worker
        self._failing: set[str] = set()
        self._since = 0.0
        self._late_until = 0.0
        """Until then calls may still fail that were under way when the engine came back."""

    @property
    def lasts(self) -> bool:
        """Does some part of the worker get no answer?"""
        return bool(self._failing)

    def lost(self, part: str, error: BaseException) -> None:
        """This part gets no answer."""
        if time.monotonic() < self._late_until:
            log.debug("%s of %s, late: %s", part, self._worker, phrase(error))
            return
        if self._failing:
            log.debug("%s of %s: %s", part, self._worker, phrase(error))
        else:
            self._since = time.monotonic()
            log.warning("the %s does not answer worker %s (%s): %s", self._engine, self._worker, part, phrase(error))
        self._failing.add(part)

    def regained(self, part: str, *, for_all: bool = False) -> None:
        """This part has got an answer. `for_all`: the others need not try first, which some of them seldom do."""
        if part in self._failing:
            self._failing.discard(part)
            if for_all:
                self._failing.clear()
            if not self._failing:
                now = time.monotonic()
                silent, self._late_until = now - self._since, now + LATE
                log.warning("the %s answers worker %s again, after %.1f s", self._engine, self._worker, silent)
