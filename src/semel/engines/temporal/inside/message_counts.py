"""Messages that a flow did not take, and keys that an entity forgot too early: counted in its memo.

It is the flow that finds them, inside of the cluster. The memo can be read while no worker is up, counts exactly
as often as the messages are handled, and goes on when the flow begins a new history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from temporalio import workflow

from semel.codec import converter_of
from semel.contract.decision import Reason
from semel.contract.records import MessageConflict, Suppressed
from semel.contract.times import from_micros

TALLY: Final = "semel.tally"
"""The memo field."""
CONFLICT: Final = "semel.conflict"
"""The memo field of a workflow for the last signal that it refused."""


class Count(Struct, array_like=True):
    """How often, first when, last when."""

    times: int
    first: int
    last: int


_to_counts: Final = converter_of(dict[str, Count])
_conflict_of: Final = converter_of(MessageConflict)


class MessageCounts:
    """The counts of the flow that runs here."""

    def __init__(self) -> None:
        self._counts = _to_counts(workflow.memo_value(TALLY, None) or {})

    def add(self, now: int, **times: int) -> None:
        """Count, by the names of reasons; nothing is written where nothing is to be counted."""
        news = {Reason[name.upper()].value: n for name, n in times.items() if n}
        for reason, n in news.items():
            count = self._counts.setdefault(reason, Count(0, now, now))
            count.times, count.last = count.times + n, now
        if news:
            workflow.upsert_memo({TALLY: msgspec.to_builtins(self._counts)})

    def refuse(self, now: int, conflicts: Sequence[MessageConflict]) -> None:
        """Count signals that were refused, and note the last one."""
        self.add(now, message_differs=len(conflicts))
        workflow.upsert_memo({CONFLICT: msgspec.to_builtins(conflicts[-1])})


def last_conflict(memo: dict[str, Any]) -> MessageConflict | None:
    """The last signal that a workflow refused, as its memo says."""
    found = memo.get(CONFLICT)
    return None if found is None else _conflict_of(found)


def counted(execution: str, memo: dict[str, Any]) -> list[Suppressed]:
    """What the memo of an execution says."""
    counts = _to_counts(memo.get(TALLY) or {})
    return [
        Suppressed(execution, Reason(reason), one.times, from_micros(one.first), from_micros(one.last))
        for reason, one in counts.items()
    ]
