"""`semel demo events` shows one run for five deliveries, and its last line is computed: if untrue, it says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from semel import EventEnvelope, Status
from semel.cli import demo_events
from semel.cli.demo_events import Deliveries, Delivering
from semel.cli.demo_processes import DemoFailed
from semel.contract.events import EventInfo, EventRun, EventState
from semel.contract.runs import Why
from semel.events import EventPage
from tests.cli.shell import semel

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "activity-ship:/payments#evt_abc123"
ONCE = "once: 5 deliveries by 3 processes, 1 of them killed; 4 duplicates, 1 run"


def page(duplicates: int = 4) -> EventPage:
    event = EventEnvelope.from_cloudevent(dict(demo_events.CLOUD_EVENT))
    info = EventInfo(
        event.event_id, event.type, event.source, EventState.ROUTED, ("ship",), None, False, NOW, None, duplicates, NOW
    )
    return EventPage(info, event, (), ())


def run(key: str = KEY, status: Status = Status.COMPLETED) -> tuple[EventRun, Status]:
    return EventRun("ship", key, "1", Why.EVENT, 1, 0, NOW), status


TRUE = Deliveries(page(), [run()], [KEY], {1: [True, True], 2: [True, True]}, 1)


@pytest.mark.slow
def test_five_deliveries_by_three_processes_are_one_run() -> None:
    told = semel("demo", "events")
    assert told.code == 0, told
    lines = told.out.splitlines()
    assert lines[-1] == ONCE
    shown = lines.index("$ semel events show /payments#evt_abc123")
    assert "delivered 5 times" in lines[shown + 2]
    assert [line.split()[:3] for line in lines[shown:] if "activity-" in line] == [["ship", "completed", KEY]]
    assert ["restock", "other", "type"] in [line.split()[:3] for line in lines[shown:]]


def test_what_is_true_is_summed_up() -> None:
    assert (TRUE.doubts, TRUE.sum_up()) == ([], ONCE)


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({"ran": []}, "the function ran 0 times"),
        ({"ran": [KEY, KEY]}, "the function ran 2 times"),
        ({"ran": ["activity-ship:other"]}, "activity-ship:other ran"),
        ({"runs": []}, "0 runs are on record"),
        ({"runs": [run(), run()]}, "2 runs are on record"),
        ({"runs": [run(status=Status.FAILED)]}, "not one that completed"),
        ({"page": page(duplicates=3)}, "4 of 5 deliveries are on record"),
        ({"page": page(duplicates=5)}, "6 of 5 deliveries are on record"),
        ({"answered": {1: [True, True], 2: [True, False]}}, "4 deliveries were answered, 1 of them as new"),
        ({"answered": {1: [True, True], 2: [True]}}, "3 deliveries were answered"),
        ({"killed": 0}, "0 processes were killed"),
    ],
)
def test_what_is_not_true_is_doubted(change: dict[str, Any], doubt: str) -> None:
    assert any(doubt in one for one in replace(TRUE, **change).doubts)


def test_the_demo_fails_when_its_last_line_is_not_true(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(self: Delivering) -> Deliveries:
        return replace(TRUE, ran=[KEY, KEY])

    monkeypatch.setattr(Delivering, "play", play)
    told = semel("demo", "events")
    assert (told.code, told.out.splitlines()[-1]) == (1, "NOT once: the function ran 2 times.")


def test_a_process_that_ends_early_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(self: Delivering) -> Deliveries:
        raise DemoFailed("process 1 ended early (no output)")

    monkeypatch.setattr(Delivering, "play", play)
    told = semel("demo", "events")
    assert (told.code, "process 1 ended early" in told.out) == (1, True)
