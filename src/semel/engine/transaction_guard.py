"""Where a function runs inside a transaction of an engine, nothing may be asked of an app.

SQLite has one writer, and the function has it: the app would wait for the function, which waits for the app. On
PostgreSQL what was asked for would stay when the transaction is undone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from semel.errors import Forbidden

_stays: Final[ContextVar[list[bool] | None]] = ContextVar("semel_inside", default=None)
"""[True] while the function runs. A list, since loops of other threads are handed copies of the context."""


@contextmanager
def inside_transaction() -> Iterator[None]:
    """Around the function, in the thread that runs it."""
    stays = [True]
    before = _stays.set(stays)
    try:
        yield
    finally:
        stays[0] = False
        _stays.reset(before)


def forbid_app_in_transaction() -> None:
    """Raise Forbidden if a function in a transaction asks, be it through the loop of another thread."""
    stays = _stays.get()
    if stays is not None and stays[0]:
        raise Forbidden(
            "a function in ctx.transaction() cannot use the app: its transaction is open, and would wait for itself or "
            "be undone without what was asked for. Return from it, and then let the workflow do it: "
            "`await ctx.enqueue(...)` or `await ctx.execute_task(...)`.",
            what="use of the app in ctx.transaction()",
        )
