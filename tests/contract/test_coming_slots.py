"""A slot that has not been decided about is explained: when it is due, or why it is no slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from semel.contract.coming_slots import describe_coming_slot
from semel.contract.runs import ScheduleInfo
from semel.contract.timing import Timing

NOW = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
DAILY = Timing(cron="0 9 * * *", exclude="2026-03-02", end_at=datetime(2026, 3, 10, tzinfo=UTC))


def info(**fields: Any) -> ScheduleInfo:
    known: dict[str, Any] = dict.fromkeys(ScheduleInfo.__slots__)
    return ScheduleInfo(**{**known, "id": "daily", "cursor": NINE - timedelta(days=1), "waiting": (), **fields})


@pytest.mark.parametrize(
    ("slot", "fields", "told"),
    [
        (NINE, {}, "has not run yet: it is due at 2026-03-01 09:00:00 UTC, in 30m."),
        (NINE - timedelta(days=1), {}, ""),
        (NINE + timedelta(hours=1), {}, "has no slot at 2026-03-01 10:00:00 UTC; the next one after it is 2026-03-03"),
        (NINE + timedelta(days=1), {}, "has no slot at 2026-03-02 09:00:00 UTC (excluded)"),
        (NINE + timedelta(days=20), {}, "has no slot at 2026-03-21 09:00:00 UTC (after end); there is none after it."),
        (NINE, {"paused_at": NOW}, "is paused since 2026-03-01 08:30:00 UTC, and while it is, no slot runs."),
        (NINE - timedelta(days=1), {"waiting": (NINE - timedelta(days=1),)}, "waits for a run to end."),
    ],
)
def test_a_slot_is_explained(slot: datetime, fields: dict[str, Any], told: str) -> None:
    text = describe_coming_slot(info(**fields), DAILY, slot, NOW)
    assert text.endswith(told) if not told else told in text


def test_a_slot_that_is_due_waits_for_a_look() -> None:
    text = describe_coming_slot(info(), DAILY, NINE, NINE + timedelta(seconds=3))
    assert "it is due since 2026-03-01 09:00:00 UTC, and a worker decides about it when it looks" in text


def test_jitter_is_part_of_when_it_is_due() -> None:
    timing = Timing(cron="0 9 * * *", jitter="10m", schedule_id="daily")
    due = timing.fires_at(NINE)
    assert due > NINE
    assert f"it is due at {due:%Y-%m-%d %H:%M:%S} UTC" in describe_coming_slot(info(), timing, NINE, NOW)


def test_slots_after_the_end_of_a_run_are_not_known() -> None:
    timing = Timing(every="1h", after="finish")
    assert "are not known beforehand" in describe_coming_slot(info(), timing, NINE, NOW)
