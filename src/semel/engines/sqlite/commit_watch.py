"""Hears of commits on connections of callers, of which SQLite tells nobody: by looking, often at first."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from semel.engine.caller_connection import CallerConnection

FIRST: Final = 0.001
LONGEST: Final = 0.05
GROWTH: Final = 1.3
GIVE_UP_AFTER: Final = 60.0
"""Seconds that a transaction is watched; for the commit of a longer one workers have their slow poll."""
AFTERWARDS: Final = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512)
"""Pauses between looks once the transaction has ended: SQLite says so before the commit can be seen."""


class CommitWatch:
    """Has somebody look at the database when a transaction of a caller's has ended, and now and then before."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look
        self._watched: dict[int, asyncio.TimerHandle] = {}

    def expect(self, connection: CallerConnection) -> None:
        """Something was written on this connection."""
        end = time.monotonic() + GIVE_UP_AFTER
        number = id(connection.driver_connection)
        self._later(FIRST, number, lambda: self._while_open(number, connection, FIRST, end))

    def _later(self, pause: float, number: int, step: Callable[[], None]) -> None:
        known = self._watched.pop(number, None)
        if known is not None:
            known.cancel()
        self._watched[number] = asyncio.get_running_loop().call_later(pause, step)

    def _while_open(self, number: int, connection: CallerConnection, pause: float, end: float) -> None:
        """It may have been committed and the next one begun since the last look."""
        if not connection.in_transaction or time.monotonic() > end:
            self._afterwards(number, 0)
            return
        self._look()
        longer = min(LONGEST, pause * GROWTH)
        self._later(longer, number, lambda: self._while_open(number, connection, longer, end))

    def _afterwards(self, number: int, done: int) -> None:
        self._look()
        if done < len(AFTERWARDS):
            self._later(AFTERWARDS[done], number, lambda: self._afterwards(number, done + 1))
        else:
            del self._watched[number]

    def close(self) -> None:
        """Look once more, for what was committed since the last look, and then no more."""
        if self._watched:
            for timer in self._watched.values():
                timer.cancel()
            self._watched.clear()
            with contextlib.suppress(RuntimeError):
                self._look()
