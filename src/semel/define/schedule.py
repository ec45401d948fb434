"""What people say of a schedule: when it fires, and what becomes of slots that cannot run on time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import TypedDict

from semel.contract.durations import Duration
from semel.triggers.options import IntervalStart, MisfirePolicy, NonexistentPolicy, OverlapPolicy, RepeatedPolicy


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule, for `@app.on_schedule` and `app.schedules.put` alike."""

    cron: str | Sequence[str]
    """One cron expression or several: five fields, names, ranges, steps, `@daily`."""
    seconds: bool
    """The expressions have six fields, seconds first."""
    every: Duration
    """An interval of elapsed time, such as "5m"."""
    after: IntervalStart
    """Where an interval is counted from: the slot before, or the end of the run before."""
    at: datetime | Sequence[datetime]
    """Single times."""
    timezone: str
    """The IANA zone of the wall clock that cron expressions and `exclude` go by. Without it: UTC."""
    nonexistent: NonexistentPolicy
    """What becomes of wall-clock times that a change of the clocks leaves out."""
    repeated: RepeatedPolicy
    """Which of two equal wall-clock times fires."""
    exclude: str | date | Sequence[str | date]
    """Dates, or cron expressions: a slot whose wall-clock time matches one is left out."""
    start_at: datetime
    """No slot before this."""
    end_at: datetime
    """No slot at or after this."""
    jitter: Duration
    """Each slot fires up to so much later, always by the same amount."""
    misfire: MisfirePolicy
    """What becomes of slots that nobody could start in time. Without it: skip."""
    max_catchup: int
    """So many of the newest missed slots are caught up. Without it: 10."""
    grace: Duration
    """Until when a late slot counts as on time. Without it: half of the time to the next slot, at most an hour."""
    overlap: OverlapPolicy
    """What becomes of a slot while a run is active. Without it: skip."""
    max_buffer: int
    """So many slots wait for the active run at most. Without it: 100."""
    start_deadline: Duration
    """A slot that has waited for longer, for a run to end or for a worker to begin it, is dropped."""
    pause_after_failures: int
    """After so many failed runs in a row it pauses itself."""
    finish_by: Duration
    """A run that has not ended so long after its slot is told by `semel doctor`."""
    queue: str
    """Another queue than the function's own."""
    priority: int
    """Another priority than the function's own."""
