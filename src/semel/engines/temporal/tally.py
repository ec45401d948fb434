"""Duplicates that an entity found, and keys that it forgot too early: counted in its memo.

It is the entity that finds them, inside of the cluster. The memo can be read while no worker is up, counts exactly
as often as the messages are handled, and goes on when the entity begins a new history.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct
from temporalio import workflow

from semel.contract.decision import Reason
from semel.contract.records import Suppressed
from semel.contract.times import from_micros

TALLY: Final = "semel.tally"
"""The memo field."""


class Count(Struct, array_like=True):
    """How often, first when, last when."""

    times: int
    first: int
    last: int


class Tally:
    """The counts of the entity that runs here."""

    def __init__(self) -> None:
        self._counts = msgspec.convert(workflow.memo_value(TALLY, None) or {}, dict[str, Count])

    def add(self, now: int, **times: int) -> None:
        """Count, by the names of reasons; nothing is written where nothing is to be counted."""
        news = {Reason[name.upper()].value: n for name, n in times.items() if n}
        for reason, n in news.items():
            count = self._counts.setdefault(reason, Count(0, now, now))
            count.times, count.last = count.times + n, now
        if news:
            workflow.upsert_memo({TALLY: msgspec.to_builtins(self._counts)})


def counted(execution: str, memo: dict[str, Any]) -> list[Suppressed]:
    """What the memo of an execution says."""
    counts = msgspec.convert(memo.get(TALLY) or {}, dict[str, Count])
    return [
        Suppressed(execution, Reason(reason), one.times, from_micros(one.first), from_micros(one.last))
        for reason, one in counts.items()
    ]
