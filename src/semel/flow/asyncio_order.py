"""Two gaps in asyncio, closed while workflow code runs: there, the order of a set differs between processes.

`as_completed` starts coroutines in such an order, and what `gather` gives may be in the sets of `asyncio.wait`. Both
are asyncio's own again as soon as no thread of the process runs workflow code.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks
from collections.abc import Iterable, Iterator
from threading import Lock
from types import FunctionType
from typing import Any, Final, cast

_tasks: Final = cast(Any, tasks)
_shared: Final = cast(FunctionType, asyncio.as_completed)
"""The function that everybody has imported: what it does is its code, which can be exchanged."""
_their_code: Final = _shared.__code__
_theirs: Final = FunctionType(_their_code, _shared.__globals__, _shared.__name__, _shared.__defaults__)
_theirs.__kwdefaults__ = _shared.__kwdefaults__
_TheirGathering: Final[Any] = _tasks._GatheringFuture
_lock: Final = Lock()
_inside = 0
"""How many threads run workflow code."""


def _in_order(fs: Iterable[Any], *, timeout: float | None = None) -> Iterator[Any]:
    """The code of `as_completed` meanwhile. It runs with the globals of asyncio, and so imports what it needs."""
    from semel.flow import asyncio_order

    return asyncio_order.completed(fs, timeout)


_our_code: Final = cast(FunctionType, _in_order).__code__


def completed(fs: Iterable[Any], timeout: float | None) -> Iterator[Any]:
    """What `as_completed` gives: in a workflow the awaitables start in the order in which they were given."""
    if hasattr(asyncio.events._get_running_loop(), "group_number"):
        fs = [asyncio.ensure_future(one) for one in fs]
    return cast(Iterator[Any], _theirs(fs, timeout=timeout))


class _Gathering(_TheirGathering):  # type: ignore[misc]
    """What `gather` gives; in a workflow its hash is a number, as that of all futures there."""

    _number: int | None = None

    def __init__(self, children: Any, *, loop: Any) -> None:
        super().__init__(children, loop=loop)
        number = getattr(loop, "group_number", None)
        if number is not None:
            self._number = number()

    def __hash__(self) -> int:
        return object.__hash__(self) if self._number is None else self._number


def keep_order() -> None:
    """Close the gaps: workflow code is about to run on this thread. For other threads nothing changes."""
    global _inside
    with _lock:
        if not _inside:
            _shared.__code__ = _our_code
            _tasks._GatheringFuture = _Gathering
        _inside += 1


def restore_order() -> None:
    """Give asyncio back what is its own, if no other thread runs workflow code."""
    global _inside
    with _lock:
        _inside -= 1
        if not _inside:
            _shared.__code__ = _their_code
            _tasks._GatheringFuture = _TheirGathering
