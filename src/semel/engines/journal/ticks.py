"""The chores of a worker that look at schedules and events when they are due. Any number of workers may; none leads."""

from __future__ import annotations

import time
from typing import Final, Protocol
from weakref import WeakSet

from semel.contract.slot_policy import LEAST_GRACE
from semel.engines.journal.silence import SILENT
from semel.errors import EngineUnavailable
from semel.runtime.chores import Chore

SHORTEST: Final = 0.02
FORGET_EVERY: Final = 3600.0
"""Seconds between two looks for records that are past their time."""
GAP: Final = 0.5
"""Seconds between two looks, at least, where something else may have changed as well."""


class Timed(Protocol):
    """Things of a namespace that somebody has to look at when their time has come: schedules, or events."""

    async def start_pending(self) -> None:
        """Start runs that somebody else has decided and not started."""

    async def next_due(self) -> float | None:
        """Seconds until somebody has to look; None: not before something changes."""

    async def run_due(self, down_for: float = 0.0) -> None:
        """Look at everything that is due; so many seconds ago the engine ceased to answer whoever looks now."""

    async def forget(self) -> None:
        """Forget what is past its time."""


class Tickers:
    """The chores of an engine's workers that look at its schedules and its events."""

    def __init__(self) -> None:
        self._tickers: WeakSet[Ticker] = WeakSet()

    def chore(self, name: str, timed: Timed, poll: float) -> Chore:
        """One more, for one worker.

        `poll`: seconds after which what somebody else has changed is noticed without a word of it.
        """
        ticker = Ticker(name, timed, poll)
        self._tickers.add(ticker)
        return ticker.chore

    def changed(self) -> None:
        """Some schedule may have been changed, or some event waits: have all of them look."""
        for ticker in self._tickers:
            ticker.look_soon()


class Ticker:
    """Looks at the schedules or the events of one namespace, for one worker."""

    def __init__(self, name: str, timed: Timed, poll: float) -> None:
        self._timed = timed
        self._poll = poll
        self._looked = 0.0
        self._down_since: float | None = None
        self._forget_at = time.monotonic() + FORGET_EVERY
        self.chore = Chore(name, self._run, longest_pause=5.0)

    def look_soon(self) -> None:
        """Look now, or a moment after the last look."""
        self.chore.due_in(max(0.0, self._looked + GAP - time.monotonic()))

    async def _run(self) -> float:
        self._looked = time.monotonic()
        try:
            left = await self._look()
        except EngineUnavailable:
            if self._down_since is None:  # what fired within the least grace before this look would have been on time
                self._down_since = self._looked - LEAST_GRACE.total_seconds()
            raise
        self._down_since = None
        if self._looked > self._forget_at:
            self._forget_at = self._looked + FORGET_EVERY
            await self._timed.forget()
        return self._poll if left is None else min(self._poll, max(left, SHORTEST))

    async def _look(self) -> float | None:
        """Look at what is due; seconds until the next is."""
        await self._timed.start_pending()
        left = await self._timed.next_due()
        if self._down_since is None and time.monotonic() - self._looked > SILENT:  # it was answered in the end
            self._down_since = self._looked - LEAST_GRACE.total_seconds()
        if left == 0:
            await self._timed.run_due(0.0 if self._down_since is None else time.monotonic() - self._down_since)
            left = await self._timed.next_due()
        return left
