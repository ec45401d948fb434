"""The journal of a workflow, kept in its history.

Temporal's history says what happened, and which commands of its own the code gave. It does not say what the code
waits for, or with what input it asked. So each turn leaves the row that it would leave in a journal, as the result of a
local activity: a row can be read without the code, and when the code is replayed, it is compared with what it does now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace
from temporalio import workflow

from semel.errors import NonDeterminism
from semel.flow import entries
from semel.flow.commands import Command
from semel.flow.entries import NOTHING, Asked, Entry, Resolved
from semel.flow.instance import Instance


class Journal:
    """The rows of one run, while it is replayed. What it writes afterwards nobody compares: it is let go of."""

    def __init__(self, fresh: Callable[[], Instance], inherited: Sequence[bytes] = ()) -> None:
        self._fresh = fresh
        self._rows: list[bytes] = list(inherited)
        self._outputs: dict[int, Raw] = {}

    def answer(self, number: int, output: Raw) -> None:
        """What a step gave: it is in history once, and not in the row again."""
        if workflow.unsafe.is_replaying():
            self._outputs[number] = output

    def compare(self, now: bytes, then: bytes) -> None:
        """NonDeterminism: history says something else than what the code does."""
        if not workflow.unsafe.is_replaying():
            self._rows.clear()
            self._outputs.clear()
            return
        self._rows.append(then)
        if now != then:
            self._replay()

    def _replay(self) -> None:
        """Find out what differs, and at which line; other words for the same do not matter."""
        instance = self._fresh()
        try:
            instance.replay([entry for row in self._rows for entry in filled(row, self._outputs)])
        finally:
            instance.close()


def row_of(written: Sequence[Entry], steps: Collection[int]) -> bytes:
    """A row as it is written."""
    return entries.dump(
        replace(entry, output=NOTHING) if isinstance(entry, Resolved) and entry.command in steps else entry
        for entry in written
    )


def filled(row: bytes, outputs: Mapping[int, Raw]) -> Iterator[Entry]:
    """A row with what its steps gave."""
    for entry in entries.load(row):
        found: Any = outputs.get(entry.command) if isinstance(entry, Resolved) else None
        yield entry if found is None else replace(entry, output=found)


def adopt(row: bytes, commands: Sequence[Command]) -> None:
    """Commands go by what they were asked for with then: ids of Temporal's are made of it."""
    marks = {entry.command: entry.mark for entry in entries.load(row) if isinstance(entry, Asked)}
    for command in commands:
        command.mark = marks.get(command.number, command.mark)


def began_with(row: bytes, name: str, there: Sequence[int]) -> NonDeterminism:
    """A run began with a version that is not there any more."""
    first = entries.load(row)[0]
    version = getattr(first, "version", "another")
    known = ", ".join(map(str, sorted(there)))
    return NonDeterminism(
        f"workflow {name!r} began with version {version}, and this code has {known}. It waits. Keep the old function "
        "until all that began with it ended.",
        expected=f"version {version}",
        found=f"versions {known}",
    )
