"""What `explain` says, for each situation."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from semel.contract.decision import Reason
from semel.contract.lifecycle import Status
from semel.contract.records import ErrorInfo, Execution, Suppressed
from semel.contract.words import explain_text

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
TEN = NINE + timedelta(hours=1)

PENDING = Execution(
    id="e1", kind="task", name="charge", key="order-1", queue="payments", priority=0, status=Status.PENDING,
    attempt=0, max_attempts=3, created_at=NINE, run_at=None, started_at=None, finished_at=None,
    retention=timedelta(days=7), window=timedelta(days=7), generation=0, previous_id=None, worker=None,
    progress=None, cancel_requested=False, error=None, expired=False,
)  # fmt: skip
COMPLETED = replace(PENDING, status=Status.COMPLETED, attempt=1, started_at=NINE, finished_at=TEN)
FAILED = replace(COMPLETED, status=Status.FAILED, attempt=3, error=ErrorInfo("ValueError", "no funds"))


def said(execution: Execution, *suppressed: Suppressed, now: datetime = TEN) -> str:
    return explain_text("order-1", [execution], suppressed, now)


def test_a_key_that_never_ran() -> None:
    text = explain_text("order-1", [], [], NINE)
    assert text == "Nothing is known under the key 'order-1': it never ran, or its window is over."


def test_the_whole_story() -> None:
    second = replace(COMPLETED, id="e2", previous_id="e1", window=timedelta(days=30))
    joined = Suppressed("e2", Reason.JOINED, 49, NINE, TEN)
    assert explain_text("order-1", [second, FAILED], [joined], TEN) == (
        "Key 'order-1' was admitted 2 times.\n"
        "\n"
        "Execution e2 of 'charge' on queue 'payments': completed.\n"
        "  Admitted 2026-03-01 09:00:00 UTC, attempt 1 of 3.\n"
        "  Ended 2026-03-01 10:00:00 UTC.\n"
        "  It followed execution e1.\n"
        "  49 duplicates did not run (it had not ended, so they share its result), "
        "the first at 2026-03-01 09:00:00 UTC, the last at 2026-03-01 10:00:00 UTC.\n"
        "\n"
        "Execution e1 of 'charge' on queue 'payments': failed.\n"
        "  Admitted 2026-03-01 09:00:00 UTC, attempt 3 of 3.\n"
        "  Ended 2026-03-01 10:00:00 UTC.\n"
        "  Error: ValueError: no funds\n"
        "\n"
        "The key is taken until 2026-03-31 10:00:00 UTC (its window is 30d from the end): "
        "until then duplicates get this result."
    )


def test_one_that_has_not_ended() -> None:
    text = said(PENDING)
    assert "was admitted once." in text
    assert text.endswith("It has not ended: any further request under this key joins it.")


def test_one_that_runs() -> None:
    running = replace(PENDING, status=Status.RUNNING, started_at=NINE, worker="box:17", progress="3 of 10")
    assert "  Running on box:17 since 2026-03-01 09:00:00 UTC." in said(running)
    assert "  Progress: 3 of 10" in said(running)
    assert "Running on a worker since" in said(replace(running, worker=None))


def test_one_that_waits_for_its_time() -> None:
    assert "  Waiting until 2026-03-01 10:00:00 UTC." in said(replace(PENDING, run_at=TEN))


def test_one_that_waits_for_another_attempt() -> None:
    text = said(replace(PENDING, run_at=TEN, attempt=1, error=ErrorInfo("OSError", "gone")))
    assert "  Last error: OSError: gone" in text
    assert "attempt 1 of 3" in text


def test_one_whose_window_is_over() -> None:
    text = said(COMPLETED, now=TEN + timedelta(days=7))
    assert text.endswith("Its window ended 2026-03-08 10:00:00 UTC: the next request under this key runs.")


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED, Status.TIMED_OUT])
def test_one_that_freed_its_key(status: Status) -> None:
    assert f"It ended {status}, which frees the key" in said(replace(FAILED, status=status))


def test_one_that_is_past_its_retention() -> None:
    assert "only the key is remembered" in said(replace(COMPLETED, expired=True))


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        (Reason.JOINED, "it had not ended, so they share its result"),
        (Reason.REPLAYED, "it had finished, so they got its outcome"),
        (Reason.INPUT_DIFFERS, "refused: the input was different"),
        (Reason.FUNCTION_DIFFERS, "refused: the key belongs to another function"),
        (Reason.SEEN, "its key had been seen within the window"),
    ],
)
def test_each_reason_has_its_words(reason: Reason, why: str) -> None:
    one = Suppressed("e1", reason, 1, NINE, NINE)
    assert f"  1 duplicate did not run ({why}), at 2026-03-01 09:00:00 UTC." in said(COMPLETED, one)


@pytest.mark.parametrize(("count", "what"), [(1, "1 message key was"), (7, "7 message keys were")])
def test_keys_that_were_forgotten_too_soon_are_no_duplicates(count: int, what: str) -> None:
    text = said(COMPLETED, Suppressed("e1", Reason.OVERFLOWED, count, NINE, TEN))
    assert (
        f"  {what} forgotten before the window was over, the last at 2026-03-01 10:00:00 UTC: more than max_keys"
        in text
    )
    assert "duplicate" not in text.split("The key is taken")[0]


def test_duplicates_are_told_with_the_execution_they_met() -> None:
    text = explain_text("order-1", [COMPLETED], [Suppressed("another", Reason.JOINED, 1, NINE, NINE)], TEN)
    assert "duplicate did not run" not in text
