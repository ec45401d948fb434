"""How long to bear with a database that does not answer."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from semel.errors import EngineUnavailable

P = ParamSpec("P")
T = TypeVar("T")

TRIES = 5
REMIND_AFTER = 30.0
"""Seconds after which the log says again what has not changed."""


class Reminder:
    """Says when a failure that goes on is worth a line: at once, and then every half a minute."""

    def __init__(self) -> None:
        self._next = -math.inf

    def due(self) -> bool:
        """Is it time for a line? The next one then is later."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + REMIND_AFTER
        return True

    def over(self) -> None:
        """It is over: the next one is a new failure."""
        self._next = -math.inf


async def retry_unavailable(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Try again a few times, over a second or two. Only for calls that may safely be repeated."""
    for attempt in range(TRIES):
        try:
            return await call(*args, **kwargs)
        except EngineUnavailable:
            if attempt == TRIES - 1:
                raise
            await asyncio.sleep(pause(attempt))
    raise AssertionError("unreachable")


def pause(attempt: int, most: float = 5.0) -> float:
    """Seconds before the next try: a tenth, doubling, never over `most`, spread so that many do not meet."""
    return min(most, 0.1 * 2.0 ** min(attempt, 10)) * (0.5 + random.random())
