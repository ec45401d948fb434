"""How long to bear with a database that does not answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from semel.errors import EngineUnavailable

P = ParamSpec("P")
T = TypeVar("T")

TRIES = 5


async def persistently(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
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
