"""One gap in asyncio: `as_completed` starts coroutines in the order of a set, which differs between processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from semel.flow.loop import FlowLoop

_original = asyncio.as_completed


def _in_order(fs: Iterable[Any], *, timeout: float | None = None) -> Iterator[Any]:
    """`asyncio.as_completed`; in a workflow the awaitables start in the order in which they were given."""
    if isinstance(asyncio.events._get_running_loop(), FlowLoop):
        fs = [asyncio.ensure_future(one) for one in fs]
    return _original(fs, timeout=timeout)


def keep_order() -> None:
    """Put the ordered one in its place; outside of workflows it does what the other did."""
    asyncio.as_completed = asyncio.tasks.as_completed = _in_order
