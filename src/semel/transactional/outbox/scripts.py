"""What is done with the outbox, as transactions: take rows, mark them, look at them, clean up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from semel.transactional.outbox.events import NewRow, TakenRow, read_row
from semel.transactional.statements import Many, One, Script

PROBE_FOR: Final = 60.0
"""Seconds that the others wait for the relay that tries whether an engine answers again, should it die meanwhile."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
"""Seconds until a row that failed is tried again: at first, and at most."""
LONGEST_OUTAGE_PAUSE: Final = 60.0
"""Seconds between two tries of an engine that does not answer, at most."""
MOST_CLEANED: Final = 1000
"""Rows that are deleted in one transaction."""
MOST_REDRIVEN: Final = 1000
"""Processed rows that are carried out again in one transaction."""
DEAD_FOR: Final = 86_400.0
"""Seconds that a relay that died is remembered."""


class Claimed(NamedTuple):
    """Rows that a relay has taken, or why there are none."""

    rows: list[TakenRow]
    failures: int = 0
    """So often in a row the engine did not answer. With 1 or more this is the one try of all relays."""
    wait: float | None = None
    """Seconds until the engine may be tried again."""


@dataclass(slots=True)
class Marks:
    """What became of the rows of one batch."""

    processed: list[tuple[int, str | None]] = field(default_factory=list)
    errors: list[tuple[int, float, str]] = field(default_factory=list)
    """With the pause before the next try."""
    failed: list[tuple[int, str]] = field(default_factory=list)
    put_off: list[tuple[int, float, str | None]] = field(default_factory=list)
    """Given back without a try, with the reason if others may do better."""
    unavailable: str | None = None
    """The engine did not answer, and this is what it said last."""

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.processed) + len(self.errors) + len(self.failed) + len(self.put_off)


class OutboxCounts(NamedTuple):
    """How an outbox stands."""

    pending: int
    oldest: float
    """Seconds that the oldest pending row has waited."""
    failed: int
    most_retries: int
    relays: int
    """Relays that live."""


def add(rows: Sequence[NewRow]) -> Script[None]:
    """Write rows."""
    yield Many("add_events", [tuple(row) for row in rows])


def claim(namespace: str, relay: str, token: str, lease: float, limit: int, types: str) -> Script[Claimed]:
    """Take rows for the time of a lease. While the engine does not answer, one relay takes one row now and then.

    `types`: the types with a handler here, as a JSON list.
    """
    failures = 0
    if down := (yield One("destination", (namespace,))):
        failures, wait = int(down[0][0]), float(down[0][1])
        if wait > 0:
            return Claimed([], wait=wait)
        if not (yield One("take_probe", (namespace, PROBE_FOR))):
            return Claimed([], wait=PROBE_FOR)
        limit = 1
    rows = [read_row(row) for row in (yield One("due_events", (namespace, limit, types)))]
    if rows:
        yield Many("lease_events", [(row.event.id,) for row in rows], (token, relay, lease))
    elif failures:  # nothing to try it with
        yield One("forget_unavailable", (namespace,))
    return Claimed(rows, failures)


def mark(namespace: str, token: str, marks: Marks, failures: int) -> Script[int]:
    """Write down what became of rows whose lease still holds; how many these are."""
    marked = 0
    if marks.processed:
        marked += len((yield Many("mark_processed", list(marks.processed), (token,))))
    if marks.errors:
        marked += len((yield Many("mark_error", list(marks.errors), (token,))))
    if marks.failed:
        marked += len((yield Many("mark_failed", list(marks.failed), (token,))))
    if marks.put_off:
        marked += len((yield Many("put_off", list(marks.put_off), (token,))))
    if marks.unavailable is not None:
        pause = outage_pause(failures + 1)
        yield One("note_unavailable", (namespace, failures, pause, marks.unavailable))
    elif failures:
        yield One("forget_unavailable", (namespace,))
    return marked


def next_due(namespace: str) -> Script[float | None]:
    """Seconds until some row may be taken; None: there is none."""
    found = (yield One("next_due", (namespace,)))[0][0]
    return None if found is None else float(found)


def beat(relay: str, namespace: str, seconds: float, idle: bool) -> Script[None]:
    """This relay lives."""
    yield One("beat", (relay, namespace, seconds, idle))


def leave(relay: str) -> Script[None]:
    """This relay stops."""
    yield One("leave", (relay,))


def clean(namespace: str, retention: float) -> Script[int]:
    """Delete some of what was processed so many seconds ago, and what nobody asks for any more; how many rows."""
    deleted = len((yield One("clean_processed", (namespace, retention, MOST_CLEANED))))
    deleted += len((yield One("clean_inbox", (MOST_CLEANED,))))
    yield One("forget_relays", (DEAD_FOR,))
    return deleted


def purge(namespace: str, status: str, older: float) -> Script[int]:
    """Delete some rows that were processed, or failed for good, so many seconds ago."""
    name = "purge_failed" if status == "failed" else "clean_processed"
    return len((yield One(name, (namespace, older, MOST_CLEANED))))


def page(namespace: str, status: str, before: int, limit: int) -> Script[list[TakenRow]]:
    """Rows, newest first."""
    return [read_row(row) for row in (yield One("list_events", (namespace, status, before, limit)))]


def get(id: int) -> Script[TakenRow | None]:
    """One row."""
    found = yield One("get_event", (id,))
    return read_row(found[0]) if found else None


def redrive(id: int) -> Script[bool]:
    """Try a failed row again; False: it has not failed."""
    return bool((yield One("redrive_event", (id,))))


def redrive_failed(namespace: str, limit: int) -> Script[int]:
    """Try failed rows again; how many."""
    return len((yield One("redrive_failed", (namespace, limit))))


def redrive_processed(namespace: str, since: float, after: int) -> Script[tuple[int, int | None]]:
    """Have some rows carried out again that were processed at a time or later: how many, and the last of them.

    None instead of the last: there are no more.
    """
    found = [int(row[0]) for row in (yield One("processed_since", (namespace, since, after, MOST_REDRIVEN)))]
    if not found:
        return 0, None
    return len((yield Many("redrive_processed", [(id,) for id in found]))), found[-1]


def find_key(namespace: str, key: str) -> Script[TakenRow | None]:
    """The newest row that starts something under a key."""
    found = yield One("find_key", (namespace, key))
    return read_row(found[0]) if found else None


def counts(namespace: str) -> Script[OutboxCounts]:
    """How the outbox stands."""
    pending, oldest, failed, retries, relays = (yield One("outbox_counts", (namespace,)))[0]
    waited = 0.0 if oldest is None else max(0.0, -float(oldest))
    return OutboxCounts(int(pending), waited, int(failed), int(retries or 0), int(relays))


def exists() -> Script[bool]:
    """Are the tables there?"""
    return bool((yield One("outbox_exists")))


def row_pause(retries: int) -> float:
    """Seconds until a row is tried again that has failed so often: doubling, spread so that many do not meet."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(retries, 20)) * (0.5 + random.random())


def outage_pause(failures: int) -> float:
    """Seconds until an engine is tried again that did not answer so often."""
    return min(LONGEST_OUTAGE_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 20)) * (0.5 + random.random())
