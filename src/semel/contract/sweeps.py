"""What a sweeper did: one outcome for each row that it found stuck, and the report of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from semel.contract.lifecycle import Status

MOST_NAMED: Final = 10
"""So many rows are named in the report that is stored of a run."""


class SweepOutcome(StrEnum):
    """What became of a row that a sweeper's function yielded."""

    STARTED = "started"
    """Its execution was started: there was none, or the last one did not complete."""
    UNDER_WAY = "under_way"
    """Its execution is pending or running: nothing is started beside it."""
    COMPLETED = "completed"
    """Its execution completed, and the row is stuck all the same: reported, not started again."""
    ERROR = "error"
    """It could not be started: its key stands for other input, its arguments do not fit, the engine refused it."""
    RECENT = "recent"
    """It says that it became stuck only lately: ignored."""


@dataclass(frozen=True, slots=True)
class SweptRow:
    """One row that a sweeper found, and what became of it."""

    key: str
    name: str
    """The task or workflow."""
    outcome: SweepOutcome
    detail: str = ""
    execution: str = ""
    """The execution that was started, or that has the key."""

    def __str__(self) -> str:
        return f"{self.key} ({self.detail})" if self.detail else self.key


@dataclass(frozen=True, slots=True)
class SweepReport:
    """One run of a sweeper."""

    sweeper: str
    before: datetime
    """What has been stuck since before this was looked for."""
    started: int = 0
    under_way: int = 0
    completed: int = 0
    error: int = 0
    recent: int = 0
    more: bool = False
    """It stopped at its limit: there may be more rows."""
    rows: tuple[SweptRow, ...] = ()
    """Of a dry run all rows, else the first ten that completed or could not be started."""

    @property
    def stuck(self) -> int:
        """How many rows were found stuck; those that were ignored as recent do not count."""
        return self.started + self.under_way + self.completed + self.error

    def __str__(self) -> str:
        if not self.stuck:
            return "nothing is stuck"
        counts = (
            (self.started, "started"),
            (self.under_way, "under way already"),
            (self.completed, "completed although stuck"),
            (self.error, "could not be started"),
        )
        told = ", ".join(f"{count} {words}" for count, words in counts if count)
        return f"{self.stuck} stuck: {told}" + ("; stopped at its limit, there may be more" if self.more else "")


@dataclass(frozen=True, slots=True)
class SweeperState:
    """A sweeper whose schedule was applied, and how its last runs went."""

    name: str
    """Also the id of its schedule."""
    queue: str
    next_run: datetime | None
    """None while its schedule is paused."""
    last_run: datetime | None = None
    """The time of its last run that has ended; None: none has."""
    status: Status | None = None
    """How that run ended."""
    report: SweepReport | None = None
    """Of that run; None if it did not complete, or is past its retention."""
    error: str = ""
    """Why that run did not complete."""
    before: SweepReport | None = field(default=None, repr=False)
    """The report of the run before the last one."""

    @property
    def lasting(self) -> bool:
        """Were rows stuck in the last run and in the run before it?"""
        return all(one is not None and one.stuck > 0 for one in (self.report, self.before))


def count_outcomes(rows: Mapping[SweepOutcome, int]) -> dict[str, int]:
    """The counts of a report, by its fields."""
    return {outcome.value: rows.get(outcome, 0) for outcome in SweepOutcome}
