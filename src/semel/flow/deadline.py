"""The timer that is a workflow's own: when its time is up."""

from __future__ import annotations

from collections import deque
from typing import Final

from semel.flow.commands import Kind
from semel.flow.compare import same
from semel.flow.entries import Asked, Deed

TIMEOUT: Final = "timeout"
"""Its name in the journal."""


def agreed(expected: deque[Deed] | None, deadline: int | None) -> tuple[int | None, str]:
    """What a run began with by what its journal `expected`, whatever its code says by now; and under which name."""
    if expected is None:
        return deadline, TIMEOUT
    first = expected[0] if expected else None
    if isinstance(first, Asked) and same(first, Kind.TIMER, TIMEOUT):
        return int(first.mark), TIMEOUT
    if isinstance(first, Asked) and same(first, Kind.TIMER, "") and first.mark == str(deadline):
        return deadline, ""  # as it was written before it had a name
    return None, TIMEOUT
