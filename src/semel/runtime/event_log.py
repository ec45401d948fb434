"""Worker events as lines of the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from semel.contract.lifecycle import Status
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.runtime.logs import FIELDS, only_handler

log = logging.getLogger("semel.worker")
Success = tuple[str, str, str | None, str, int, str, float | None]
"""Kind, name, key, execution id, attempt, status and seconds of something that ended well."""
LONGEST_REASON: Final = 500
"""Characters of an error's message in a line about a retry."""


def log_event(event: WorkerEvent) -> None:
    """INFO for what ended well, WARNING for a retry or a lost lease, ERROR for a failure with its traceback."""
    match event.type:
        case WorkerEventType.ENDED:
            _log_end(event)
        case WorkerEventType.RETRIED:
            log.warning(
                "%s failed (execution %s, attempt %d), next attempt in %.3g s: %s",
                _subject(event),
                event.execution,
                event.attempt,
                event.retry_in or 0.0,
                _reason(event),
                extra=_fields(event),
            )
        case WorkerEventType.LEASE_LOST if event.execution:
            log.warning(
                "%s: stale completion refused: it was taken over by another worker, or the database has forgotten the "
                "claim",
                _subject(event),
                extra=_fields(event),
            )
        case _:
            pass  # for observers: these have lines of their own where they happen, or need none


def log_successes(rows: Iterable[Success]) -> None:
    """INFO for what completed or was cancelled. For who has asked whether INFO is logged.

    A worker may end many thousand tasks in a second, and most of the time that a record takes goes into what these
    lines do not need: where it was made, by which thread, who wants it. Where `configure_logging` set up all that
    there is, they are gathered as text.
    """
    handler = only_handler(log)
    if handler is None:
        for row in rows:
            _, name, key, execution, attempt, _, _ = row
            log.info("%s", _message(*row), extra=_marks(execution, key, name, attempt))
        return
    created = time.time()
    handler.gather(
        [
            handler.formatter.format_line(
                created,
                "INFO",
                log.name,
                _message(kind, name, key, execution, attempt, status, seconds),
                execution,
                key,
                name,
                attempt,
            )
            for kind, name, key, execution, attempt, status, seconds in rows
        ]
    )


def _message(
    kind: str, name: str, key: str | None, execution: str, attempt: int, status: str, seconds: float | None
) -> str:
    subject = f"{kind} {name}" if key is None else f"{kind} {name} {key!r}"
    took = "" if seconds is None else f" in {seconds * 1000:.0f} ms"
    return f"{subject} {status}{took} (execution {execution}, attempt {attempt})"


def _log_end(event: WorkerEvent) -> None:
    if event.status is Status.COMPLETED or event.status is Status.CANCELLED:
        if log.isEnabledFor(logging.INFO):
            status = event.status.value
            row = (event.kind, event.name, event.key, event.execution, event.attempt, status, event.seconds)
            log_successes([row])
        return
    trace = "" if event.error is None else event.error.traceback.rstrip()
    log.error(
        "%s %s%s (execution %s, attempt %d): %s%s",
        _subject(event),
        "failed" if event.status is None else event.status.value.replace("_", " "),
        _took(event),
        event.execution,
        event.attempt,
        _reason(event),
        f"\n{trace}" if trace else "",
        extra=_fields(event),
    )


def _subject(event: WorkerEvent) -> str:
    return f"{event.kind} {event.name}" if event.key is None else f"{event.kind} {event.name} {event.key!r}"


def _took(event: WorkerEvent) -> str:
    return "" if event.seconds is None else f" in {event.seconds * 1000:.0f} ms"


def _reason(event: WorkerEvent) -> str:
    if event.error is None:
        return event.reason or "no error was recorded"
    text = f"{event.error.type}: {event.error.message}"
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _fields(event: WorkerEvent) -> dict[str, Any]:
    return _marks(event.execution, event.key, event.name, event.attempt)


def _marks(execution: str, key: str | None, name: str, attempt: int) -> dict[str, Any]:
    """What `ExecutionFilter` adds to records that are made inside a task: here it is known without looking."""
    return dict(zip(FIELDS, (execution, key, name, attempt), strict=True))
