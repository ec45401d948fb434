"""Which executions `app.list` is asked for, checked at the door."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from semel.contract.keys import check_attribute, check_kind
from semel.contract.lifecycle import Status
from semel.contract.timing import to_utc
from semel.engine.protocol import Filter
from semel.errors import InvalidValue

FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def make_filter(
    status: Status | str | None,
    queue: str | None,
    name: str | None,
    kind: str | None,
    before: str | None,
    limit: int,
    attributes: Mapping[str, str] | None,
    scheduled: tuple[datetime | None, datetime | None],
) -> Filter:
    """See `app.list`. InvalidValue: what is wrong with it."""
    if not 1 <= limit <= 1000:
        raise InvalidValue(f"limit={limit!r}: give a whole number from 1 to 1000, and page with before=….")
    try:
        wanted = None if status is None else Status(status)
    except ValueError:
        raise InvalidValue(f"status={status!r}: there are {', '.join(Status)}.") from None
    words = dict(check_attribute(word, value) for word, value in (attributes or {}).items())
    slots = _slot_range(*scheduled)
    if words and slots is not None:
        raise InvalidValue("give attributes=, or scheduled_after= and scheduled_before=, and not both.")
    return Filter(wanted, queue, name, None if kind is None else check_kind(kind), before, limit, words, slots)


def _slot_range(after: datetime | None, before: datetime | None) -> tuple[datetime, datetime] | None:
    """The slots from one time on and before another one, either of which may be left open. None: both are."""
    if after is None and before is None:
        return None
    begin = FIRST if after is None else to_utc(after, "scheduled_after")
    end = LAST if before is None else to_utc(before, "scheduled_before")
    if end <= begin:
        raise InvalidValue(f"scheduled_before={before} is not after scheduled_after={after}: there is no slot between.")
    return begin, end
