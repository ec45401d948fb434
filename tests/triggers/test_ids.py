"""Ids of runs are byte for byte what they are documented to be, on every engine, and no two runs share one (S0-10)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from itertools import product
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from semel.contract.keys import KEY_LENGTH, check_key
from semel.errors import InputError, InvalidKey, InvalidValue
from semel.triggers.ids import (
    ACTIVITY_ID_LENGTH,
    check_activity_id,
    derive_run_id,
    event_run_id,
    format_slot,
    manual_run_id,
    parse_run_id,
    slot_run_id,
    task_instance_id,
    window_run_id,
)

ACTIVITY = "550e8400-e29b-41d4-a716-446655440000"
NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
SLOT = "2026-03-01T09:00:00+00:00"
RUN = UUID("12345678-1234-5678-1234-567812345678")


def test_the_ids_of_the_first_release() -> None:
    """Changing any of these would make every old run look new (S0-10, S0-11, S0-35, A13, A67)."""
    assert {
        "slot": slot_run_id(ACTIVITY, NINE),
        "event": event_run_id(ACTIVITY, "evt_abc123"),
        "by hand": manual_run_id(ACTIVITY, "req-1"),
        "task": task_instance_id(RUN, "send_report", 0),
        "run": str(derive_run_id("default", "schedule", slot_run_id(ACTIVITY, NINE))),
        "run again": str(derive_run_id("default", "schedule", slot_run_id(ACTIVITY, NINE), 1)),
    } == {
        "slot": "activity-550e8400-e29b-41d4-a716-446655440000:2026-03-01T09:00:00+00:00",
        "event": "activity-550e8400-e29b-41d4-a716-446655440000:evt_abc123",
        "by hand": "activity-550e8400-e29b-41d4-a716-446655440000:manual:req-1",
        "task": "task-12345678-1234-5678-1234-567812345678:send_report:0",
        "run": "b9f1d497-99d9-5abe-9541-89d2b167d328",
        "run again": "1a30f97a-4334-5ede-9d91-d9c2687a4888",
    }


@pytest.mark.parametrize(
    "same",
    [
        datetime(2026, 3, 1, 10, tzinfo=ZoneInfo("Europe/Paris")),
        datetime(2026, 3, 1, 4, tzinfo=timezone(timedelta(hours=-5))),
        datetime(2026, 3, 1, 14, 30, tzinfo=ZoneInfo("Asia/Kolkata")),
    ],
)
def test_one_instant_has_one_id_in_every_time_zone(same: datetime) -> None:
    assert slot_run_id("report", same) == f"activity-report:{SLOT}"


def test_naive_times_and_fractions_are_refused() -> None:
    with pytest.raises(InvalidValue, match="no time zone"):
        format_slot(NINE.replace(tzinfo=None))
    with pytest.raises(InvalidValue, match="fraction of a second"):
        format_slot(NINE.replace(microsecond=1))


@pytest.mark.parametrize(
    ("event_id", "part"),
    [
        ("evt_abc123", "evt_abc123"),
        ("/shop#42", "/shop#42"),
        ("a:b/c", "a:b/c"),
        ("evt:1", "evt:1"),
        (SLOT, f"evt:{SLOT}"),
        (f"evt:{SLOT}", f"evt:evt:{SLOT}"),
        (f"ann:{SLOT}", f"evt:ann:{SLOT}"),
        ("2026-03-01T09:00:00Z", "2026-03-01T09:00:00Z"),
        (f"{SLOT}!", f"{SLOT}!"),
        ("manual:req-1", "evt:manual:req-1"),
        ("b:manual:req-1", "evt:b:manual:req-1"),
        ("manual", "manual"),
        (f"sha256:{'0' * 64}", f"evt:sha256:{'0' * 64}"),
        ("sha256:short", "sha256:short"),
        ("x" * 200, "x" * 200),
        ("x" * 201, f"sha256:{sha256(b'x' * 201).hexdigest()}"),
        ("é" * 300, f"sha256:{sha256(('é' * 300).encode()).hexdigest()}"),
    ],
)
def test_event_ids_stand_as_they_are_unless_they_are_long_or_look_like_something_else(event_id: str, part: str) -> None:
    assert event_run_id(ACTIVITY, event_id) == f"activity-{ACTIVITY}:{part}"


def test_an_event_id_that_does_not_fit_behind_a_long_activity_id_is_hashed() -> None:
    id = event_run_id("a" * ACTIVITY_ID_LENGTH, "x" * 200)
    assert id == f"activity-{'a' * ACTIVITY_ID_LENGTH}:sha256:{sha256(b'x' * 200).hexdigest()}"


def paths(words: list[str], most: int) -> list[str]:
    """All texts of up to so many words, joined by colons."""
    return [":".join(some) for count in range(1, most + 1) for some in product(words, repeat=count)]


def made_by(activity_id: str, kind: str, text: str) -> str | None:
    """The id of a run, or None for what is refused."""
    try:
        if kind == "slot":
            return slot_run_id(activity_id, NINE)
        return (event_run_id if kind == "event" else manual_run_id)(activity_id, text)
    except InputError:
        return None


def test_no_two_runs_share_an_id() -> None:
    """Whatever could be confused: event ids that look like slots, requests and hashes, and colons everywhere."""
    texts = [*paths(["a", "evt", "manual", f"sha256:{sha256(b'x' * 201).hexdigest()}", SLOT], 3), "x" * 201]
    makers: dict[str, tuple[str, str, str]] = {}
    for activity_id in paths(["a", "b", "evt", "manual"], 3):
        for maker in [(activity_id, "slot", ""), *product([activity_id], ["event", "manual"], texts)]:
            id = made_by(*maker)
            if id is not None:
                assert check_key(id, "workflow_id") == id
                assert makers.setdefault(id, maker) == maker
    assert len(makers) > 3000


@pytest.mark.parametrize(
    ("given_id", "stored"),
    [
        ("daily-report", "daily-report"),
        ("digest:ann", "digest:ann"),
        ("digest:ann+news@example.org", "digest:ann+news@example.org"),
        (ACTIVITY.upper(), ACTIVITY),
        (UUID(ACTIVITY), ACTIVITY),
        ("evt", "evt"),
        ("a" * ACTIVITY_ID_LENGTH, "a" * ACTIVITY_ID_LENGTH),
    ],
)
def test_activity_ids(given_id: Any, stored: str) -> None:
    assert check_activity_id(given_id) == stored


@pytest.mark.parametrize(
    "bad", ["", " a", "a b", "a:", ":a", "a::b", "-a", "a/b", "é", "a" * 101, "a:evt", "manual:a", "a\n", None, 1]
)
def test_what_cannot_be_an_activity_id(bad: Any) -> None:
    with pytest.raises(InvalidValue, match="activity_id="):
        check_activity_id(bad)


def test_an_activity_id_with_a_colon_takes_no_events() -> None:
    with pytest.raises(InvalidValue, match="cannot have event triggers"):
        event_run_id("digest:ann", "1")


def test_a_request_by_hand_that_does_not_fit_is_refused() -> None:
    longest = KEY_LENGTH - len("activity-a:manual:")
    assert len(manual_run_id("a", "k" * longest)) == KEY_LENGTH
    with pytest.raises(InvalidKey, match=f"at most {longest}"):
        manual_run_id("a", "k" * (longest + 1))
    with pytest.raises(InvalidKey, match="blank"):
        manual_run_id("a", " ")


def test_a_run_id_depends_on_everything_it_is_derived_from() -> None:
    id = slot_run_id("a", NINE)
    runs = [
        derive_run_id("default", "schedule", id),
        derive_run_id("other", "schedule", id),
        derive_run_id("default", "event", id),
        derive_run_id("default", "schedule", f"{id}0"),
        derive_run_id("default", "schedule", id, 1),
    ]
    assert len(set(runs)) == len(runs)
    assert {run.version for run in runs} == {5}
    assert derive_run_id("default", "schedule", id) == runs[0]


@pytest.mark.parametrize(
    ("namespace", "kind", "generation"),
    [("a/b", "event", 0), ("a", "cron", 0), ("a", "event", -1), ("a", "event", True), ("a", "event", "0")],
)
def test_what_no_run_id_is_derived_from(namespace: str, kind: Any, generation: Any) -> None:
    with pytest.raises(InvalidValue):
        derive_run_id(namespace, kind, "a", generation)


@pytest.mark.parametrize(("task_type", "index"), [("a:b", 0), ("", 0), ("a" * 201, 0), ("a", -1), ("a", True)])
def test_what_cannot_be_a_task_of_a_run(task_type: str, index: int) -> None:
    with pytest.raises(InvalidValue):
        task_instance_id(RUN, task_type, index)


def test_a_task_of_a_run_fits_a_key() -> None:
    assert len(task_instance_id(str(RUN), "a" * 200, 10**11)) == KEY_LENGTH
    with pytest.raises(InvalidKey, match="at most 255"):
        task_instance_id(RUN, "a" * 200, 10**12)
    with pytest.raises(InvalidValue, match="is not a UUID"):
        task_instance_id("nightly", "a", 0)


def test_the_ids_of_windows_are_pinned() -> None:
    assert window_run_id(ACTIVITY, "debounce", "user-7", "evt_abc123") == (
        "activity-550e8400-e29b-41d4-a716-446655440000:debounce:user-7:ac7ec0215dcc74b8dbfe9987c8ab3c82"
    )
    assert window_run_id(ACTIVITY, "batch", None, "evt_abc123") == (
        "activity-550e8400-e29b-41d4-a716-446655440000:batch:9a1daba4159a019220e9470d24b12fb9"
    )
    assert window_run_id("a" * 100, "debounce", "k" * 64, "x" * 2000).count("k") == 64
    assert len(window_run_id("a" * 100, "debounce", "k" * 64, "x" * 2000)) <= 255


@pytest.mark.parametrize("key", [None, "", "manual", "evt", "a:b", "ö", "k" * 65, "2026-03-01T09:00:00+00:00"])
def test_a_key_that_could_be_something_else_is_not_shown_in_the_id_of_a_window(key: str | None) -> None:
    id = window_run_id("bill", "debounce", key, "e-1")
    assert re.fullmatch("activity-bill:debounce:[0-9a-f]{32}", id)
    assert parse_run_id(id) is None


def test_no_two_windows_and_no_event_share_an_id() -> None:
    ids = {
        window_run_id("bill", kind, key, event)
        for kind in ("debounce", "batch")
        for key in (None, "", "a", "b", "a:b", "null")
        for event in ("e-1", "e-2", "a:e-1")
    }
    assert len(ids) == 36
    for id in ids:
        part = id.removeprefix("activity-bill:")
        assert event_run_id("bill", part) == f"activity-bill:evt:{part}"
        assert event_run_id("bill", f"evt:{part}") == f"activity-bill:evt:evt:{part}"


def test_a_window_needs_an_activity_that_can_have_events() -> None:
    with pytest.raises(InvalidValue, match="cannot have event triggers"):
        window_run_id("digest:ann", "debounce", None, "e-1")
