"""The JSON form of every record: programs rely on these names."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from semel.check import RULES, Report
from semel.check import Finding as CheckFinding
from semel.contract.decision import Reason
from semel.contract.lifecycle import Status
from semel.contract.rates import Rate
from semel.contract.records import (
    ErrorInfo,
    Execution,
    Explanation,
    FailedMessage,
    MessageConflict,
    Suppressed,
    Undelivered,
)
from semel.engine.protocol import Finding, QueueState, Replayed, WorkerState
from semel.flow.history import Event
from semel.records import to_json
from semel.settings import QueueSettings

NINE = datetime(2026, 3, 1, 9, tzinfo=UTC)
AT_NINE = "2026-03-01T09:00:00+00:00"
FAILURE = ErrorInfo("ValueError", "no funds", "Traceback", "KeyError")
FAILURE_FORM = {"type": "ValueError", "message": "no funds", "traceback": "Traceback", "root_type": "KeyError"}

EXECUTION = Execution(
    id="e1", kind="task", name="charge", key="order-1", queue="payments", priority=2, status=Status.FAILED,
    attempt=3, max_attempts=3, created_at=NINE, run_at=None, started_at=NINE, finished_at=NINE,
    retention=timedelta(days=7), window=timedelta(days=8), generation=1, previous_id="e0", worker="box:17",
    progress="3 of 10", cancel_requested=False, error=FAILURE, expired=False, parent_id=None, stranded=False,
)  # fmt: skip
EXECUTION_FORM = {
    "id": "e1", "kind": "task", "name": "charge", "key": "order-1", "queue": "payments", "priority": 2,
    "status": "failed", "attempt": 3, "max_attempts": 3, "created_at": AT_NINE, "run_at": None,
    "started_at": AT_NINE, "finished_at": AT_NINE, "retention": 604800.0, "window": 691200.0, "generation": 1,
    "previous_id": "e0", "worker": "box:17", "progress": "3 of 10", "cancel_requested": False,
    "error": FAILURE_FORM, "expired": False, "parent_id": None, "stranded": False,
    "expires_at": "2026-03-08T09:00:00+00:00", "window_ends_at": "2026-03-09T09:00:00+00:00",
}  # fmt: skip

SUPPRESSED = Suppressed("e1", Reason.JOINED, 49, NINE, NINE)
SUPPRESSED_FORM = {"execution_id": "e1", "reason": "joined", "count": 49, "first_at": AT_NINE, "last_at": AT_NINE}

MESSAGE = FailedMessage(7, "add", "k", NINE, FAILURE, {"n": 1}, "Points/p")
MESSAGE_FORM = {
    "entity": "Points/p", "number": 7, "handler": "add", "dedup_key": "k", "failed_at": AT_NINE,
    "error": FAILURE_FORM, "arguments": {"n": 1},
}  # fmt: skip

REFUSED = MessageConflict("k", "add", "take", ("n",), NINE)
REFUSED_FORM = {"key": "k", "held": "add", "offered": "take", "fields": ["n"], "at": AT_NINE}

EXPLANATION = Explanation(
    "order-1", "task", (EXECUTION,), (SUPPRESSED,), NINE, "In words.", Undelivered((MESSAGE,), (REFUSED,))
)
EXPLANATION_FORM = {
    "key": "order-1", "kind": "task", "executions": [EXECUTION_FORM], "suppressed": [SUPPRESSED_FORM],
    "failed_messages": [MESSAGE_FORM], "refused": [REFUSED_FORM], "asked_at": AT_NINE, "text": "In words.",
}  # fmt: skip

QUEUE = QueueState("payments", 1, 2, 3, QueueSettings(timedelta(days=30), None, Rate(100, 60.0), 10))
QUEUE_FORM = {
    "name": "payments", "ready": 1, "running": 2, "delayed": 3, "retention": 2592000.0, "dedup_window": None,
    "rate_limit": {"count": 100, "per": 60.0}, "concurrency": 10,
}  # fmt: skip

WORKER = WorkerState(5, "box:17", "payments", NINE, NINE, frozenset({"pay", "mail"}), {"pay": "shop.pay"})
WORKER_FORM = {
    "id": 5, "name": "box:17", "queues": "payments", "started_at": AT_NINE, "expires_at": AT_NINE,
    "functions": ["mail", "pay"], "homes": {"pay": "shop.pay"},
}  # fmt: skip

FINDING = Finding(True, "migrations", "at 9")
FINDING_FORM = {"ok": True, "what": "migrations", "detail": "at 9"}

EVENT = Event(4, NINE, "resolved", 2, "task", "charge", "completed", {"a": [1]}, "e9", "order-1/1")
EVENT_FORM = {
    "row": 4, "at": AT_NINE, "what": "resolved", "command": 2, "kind": "task", "name": "charge",
    "status": "completed", "value": {"a": [1]}, "ref": "e9", "key": "order-1/1",
}  # fmt: skip

REPLAYED = Replayed("e1", "order", "order-1", "why", "task ship", "task charge", "shop.py:9", missing=False)
REPLAYED_FORM = {
    "id": "e1", "name": "order", "key": "order-1", "error": "why", "expected": "task ship", "found": "task charge",
    "where": "shop.py:9", "missing": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "form"),
    [
        (EXECUTION, EXECUTION_FORM),
        (SUPPRESSED, SUPPRESSED_FORM),
        (MESSAGE, MESSAGE_FORM),
        (REFUSED, REFUSED_FORM),
        (EXPLANATION, EXPLANATION_FORM),
        (QUEUE, QUEUE_FORM),
        (WORKER, WORKER_FORM),
        (FINDING, FINDING_FORM),
        (EVENT, EVENT_FORM),
        (REPLAYED, REPLAYED_FORM),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_record_has_this_form(record: Any, form: Any) -> None:
    assert to_json(record) == form
    assert list(to_json(record)) == list(form)
    assert json.loads(json.dumps(to_json([record]))) == [form]


def test_a_live_execution_has_no_end() -> None:
    live = to_json(replace(EXECUTION, status=Status.PENDING, finished_at=None))
    assert (live["status"], live["expires_at"], live["window_ends_at"]) == ("pending", None, None)


def test_a_report_of_the_checker() -> None:
    rule = RULES[0]
    finding = CheckFinding("shop.py", 3, 5, rule, "time.time()", ("order", "now"))
    assert to_json(Report(1, 2, (finding,))) == {
        "files": 1,
        "workflows": 2,
        "findings": [
            {
                "path": "shop.py", "line": 3, "column": 5, "rule": rule.id, "name": rule.name, "what": finding.what,
                "why": rule.why, "instead": rule.semel, "chain": ["order", "now"],
            }
        ],
    }  # fmt: skip


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(TypeError, match="neither a record nor JSON data"):
        to_json({"a": object()})
