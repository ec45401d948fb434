"""What doctor says of a sweeper, from what its last runs reported."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from semel import Status, SweepOutcome, SweepReport
from semel.contract.sweeps import SweeperState, SweptRow
from semel.sweepers import describe_state

AT = datetime(2026, 3, 1, 9, tzinfo=UTC)
LOST = SweptRow("tenant-7", "provision", SweepOutcome.COMPLETED)


def state(last: SweepReport | None, before: SweepReport | None = None, **more: Any) -> SweeperState:
    return SweeperState("stuck", "default", None, AT, more.pop("status", Status.COMPLETED), last, before=before, **more)


def report(**counts: Any) -> SweepReport:
    return SweepReport("stuck", AT, **counts)


@pytest.mark.parametrize(
    ("given", "ok", "words"),
    [
        (SweeperState("stuck", "default", None), True, "it has not run yet"),
        (state(report()), True, "last run 2026-03-01 09:00:00 UTC: nothing is stuck"),
        (state(report(started=2), report()), True, "2 stuck: 2 started"),
        (state(report(), report(started=2)), True, "nothing is stuck"),
        (state(report(started=2), report(started=2)), False, "Rows were stuck in the run before it as well"),
        (state(report(under_way=1), report(started=1)), False, "1 under way already"),
        (state(report(started=5, more=True)), False, "stopped at its limit"),
        (state(report(completed=1, rows=(LOST,))), False, "1 completed although stuck: tenant-7"),
        (state(report(error=1)), False, "1 could not be started"),
        (state(None, status=Status.FAILED, error="no database"), False, "failed: no database"),
        (state(None), True, "its report is past its retention"),
    ],
)
def test_doctor_is_red_where_somebody_has_to_look(given: SweeperState, ok: bool, words: str) -> None:
    found = describe_state(given)
    assert (found.ok, words in found.detail) == (ok, True), found
