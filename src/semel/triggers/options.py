"""What triggers take, as types: the options of a schedule, each written once. Importable without Pydantic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Literal, TypedDict

from semel.contract.durations import Duration

MisfirePolicy = Literal["skip", "catchup", "compress"]
OverlapPolicy = Literal["skip", "buffer_one", "buffer_all", "allow_all", "cancel_other", "terminate_other"]
NonexistentPolicy = Literal["shift", "skip"]
RepeatedPolicy = Literal["first", "last", "both"]
IntervalStart = Literal["start", "finish"]


class ScheduleOptions(TypedDict, total=False):
    """The options of every trigger by time; the fields of `semel.triggers.models.Schedule` say what they mean."""

    overlap: OverlapPolicy
    max_buffer: int
    start_deadline: Duration | None
    finish_by: Duration | None
    pause_after_failures: int | None


class RecurringOptions(ScheduleOptions, total=False):
    """The options of a trigger whose slots come again and again: `semel.triggers.models.RecurringSchedule`."""

    timezone: str
    misfire_policy: MisfirePolicy
    max_catchup: int
    grace: Duration | None
    jitter: Duration
    start_at: datetime | str | None
    end_at: datetime | str | None
    exclude: date | str | Sequence[date | str]
