"""A definition and a state of a schedule as they were stored once: every later release reads them, and as the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from semel.contract.runs import Why
from semel.contract.slot_policy import Misfire, Overlap
from semel.contract.slots import Pause, SlotRun
from semel.engine.schedules import ActiveRun, ScheduleDefinition, ScheduleRow, SkippedRange, read_state
from semel.engine.ticks import advance

FOLDER = Path(__file__).with_name("schedules")
DEFINITION = (FOLDER / "definition-1.json").read_bytes()
STATE = (FOLDER / "state-1.json").read_bytes()
AT = datetime(2027, 1, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_stored_definition_means_what_it_meant() -> None:
    found = ScheduleDefinition.from_bytes(DEFINITION, "daily")
    timing, policy = found.timing, found.policy
    assert found.to_bytes() == DEFINITION, "else every schedule is a new version once somebody applies it"
    assert (found.options.name, found.options.queue, found.options.priority) == ("report", "reports", 5)
    assert (found.options.reuse.value, found.options.max_attempts) == ("reject", 3)
    assert (found.payload, found.run_parameter, found.concurrency_key) == (b'{"city":"Paris"}', "run", "city:Paris")
    assert (found.pause_after_failures, found.finish_by) == (3, 4 * HOUR)
    assert (policy.misfire, policy.overlap) == (Misfire.CATCHUP, Overlap.BUFFER_ALL)
    assert (policy.given_grace, policy.longest_wait) == (timedelta(minutes=10), 2 * HOUR)
    assert (policy.max_catchup, policy.max_buffer) == (7, 20)
    assert [slot.isoformat() for slot in islice(timing.slots(AT), 3)] == [
        "2027-01-01T17:30:00+00:00",
        "2027-01-02T08:00:00+00:00",
        "2027-01-03T08:00:00+00:00",
    ]
    assert timing.next_slot(datetime(2027, 12, 24, 18, tzinfo=UTC)) == datetime(2027, 12, 26, 8, tzinfo=UTC)
    slot = datetime(2027, 1, 2, 8, tzinfo=UTC)
    assert timing.fires_at(slot) - slot == timedelta(seconds=249, microseconds=442592), (
        "the same slot fires at the same moment for ever"
    )


def test_a_stored_state_means_what_it_meant() -> None:
    found = read_state(STATE)
    assert found.to_bytes() == STATE
    assert found.active == (ActiveRun("01a1ec0ce73b770ebd75434eacd1cb41", AT),)
    assert found.line == (
        SlotRun(AT + HOUR, AT, AT + HOUR + timedelta(microseconds=1), 1, False),
        SlotRun(AT + 3 * HOUR, AT + HOUR, AT + 3 * HOUR, 2, True),
    )
    assert (found.catching_up, found.window_from, found.pauses) == (True, AT, (Pause(AT, AT + HOUR),))
    assert (found.last_end, found.completed, found.failures) == (AT, "01a1ec0ce73b770ebd75434eacd1cb40", 2)
    assert found.skipped == SkippedRange("overlap", AT, 4, AT + 3 * HOUR)


def test_a_stored_schedule_goes_on() -> None:
    """Its run has ended: the next slot of its line starts, under the id that it always had."""
    now = int((AT + 3 * HOUR).timestamp() * 1e6)
    cursor = int((AT + 3 * HOUR).timestamp() * 1e6)
    row = ScheduleRow("daily", 4, "code", DEFINITION, cursor, now, None, None, STATE, 0, 0, now)
    moved = advance(row, {}, max_payload=1 << 20)
    assert [(start.request.key, start.why, start.version) for start in moved.starts] == [
        ("activity-daily:2027-01-01T10:00:00+00:00", Why.SLOT, 4)
    ]
    assert [run.slot for run in moved.state.line] == [AT + 3 * HOUR]


def test_several_timings_mean_what_they_meant() -> None:
    data = (FOLDER / "definition-2.json").read_bytes()
    found = ScheduleDefinition.from_bytes(data, "daily")
    assert found.to_bytes() == data, "else every schedule is a new version once somebody applies it"
    assert [slot.isoformat() for slot in islice(found.timing.slots(AT), 4)] == [
        "2027-01-01T09:30:00+00:00",
        "2027-01-01T12:00:00+00:00",
        "2027-01-02T00:00:00+00:00",
        "2027-01-02T08:00:00+00:00",
    ]


def test_a_run_that_may_be_dropped_means_what_it_meant() -> None:
    data = (FOLDER / "state-2.json").read_bytes()
    found = read_state(data)
    assert found.to_bytes() == data
    assert found.active == (ActiveRun("01a1ec0ce73b770ebd75434eacd1cb41", AT, AT + HOUR, AT - HOUR, 2),)
    assert (found.window_from, found.window_slots) == (AT, 3)


def test_runs_that_are_to_be_stopped_mean_what_they_meant() -> None:
    stored = b'{"stopping":["activity-daily:2027-01-01T09:00:00+00:00"]}'
    assert read_state(stored).stopping == ("activity-daily:2027-01-01T09:00:00+00:00",)
    assert read_state(stored).to_bytes() == stored
