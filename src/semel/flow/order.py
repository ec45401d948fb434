"""Two gaps in asyncio, where something is in the order of a set, which differs between processes.

`as_completed` starts coroutines in such an order, and what `gather` gives may be in the sets of `asyncio.wait`.
"""

from __future__ import annotations

import asyncio
from asyncio import tasks
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, Final, cast

_KEPT: Final = "_semel_original"
_tasks: Final = cast(Any, tasks)


def _in_order(fs: Iterable[Any], *, timeout: float | None = None) -> Iterator[Any]:
    """`asyncio.as_completed`; in a workflow the awaitables start in the order in which they were given."""
    from semel.flow import order  # this code runs with the globals of asyncio

    return order.completed(fs, timeout)


def completed(fs: Iterable[Any], timeout: float | None) -> Iterator[Any]:
    """What `as_completed` gives, in a workflow and elsewhere."""
    if hasattr(asyncio.events._get_running_loop(), "group_number"):
        fs = [asyncio.ensure_future(one) for one in fs]
    return cast(Iterator[Any], getattr(asyncio.as_completed, _KEPT)(fs, timeout=timeout))


_Theirs: Any = _tasks._GatheringFuture


class _Gathering(_Theirs):  # type: ignore[misc]
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
    """Put both in their places, also for those who have imported the function already; outside of workflows they do
    what the others did."""
    theirs: Any = asyncio.as_completed
    if not hasattr(theirs, _KEPT):
        kept = FunctionType(theirs.__code__, theirs.__globals__, theirs.__name__, theirs.__defaults__)
        kept.__kwdefaults__ = theirs.__kwdefaults__
        setattr(theirs, _KEPT, kept)
        theirs.__code__ = _in_order.__code__
        _tasks._GatheringFuture = _Gathering
