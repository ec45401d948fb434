"""Differences between what is declared, what is on record and what runs: the words that `semel reconcile` uses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DifferenceKind(StrEnum):
    """What does not agree."""

    MISSING = "missing"
    """Code or a file declares a schedule that is not on record: it does not fire."""
    DRIFTED = "drifted"
    """It is on record, and not as code or a file declares it."""
    ORPHANED = "orphaned"
    """Code or a file declared it before, and does not any more: it goes on firing."""
    FOREIGN = "foreign"
    """It is on record as somebody else has created it, and not as code or a file declares it."""
    ASLEEP = "asleep"
    """It has slots to come and is not paused, and nobody will look at it."""
    AHEAD = "ahead"
    """Its cursor is in the future, since a clock ran ahead and came back: nothing fires until then."""
    UNSTARTED = "unstarted"
    """A run is on record, and its execution was not started."""
    LOST = "lost"
    """A run is taken for active, and its execution is not known any more."""
    UNNOTICED = "unnoticed"
    """Slots wait for a run that has ended, and nobody has noticed."""
    UNRECORDED = "unrecorded"
    """A slot has an execution, and no run on record."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that does not agree."""

    kind: DifferenceKind
    schedule: str
    detail: str = ""
    fixable: bool = True
    """Whether `fix` does something about it, or somebody has to decide."""
    fixed: bool = False

    def __str__(self) -> str:
        done = " (fixed)" if self.fixed else ""
        return f"{self.kind} {self.schedule}{done}" + (f": {self.detail}" if self.detail else "")
