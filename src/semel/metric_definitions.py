"""Every metric by its name, and what an observer counts: the same for Prometheus and for OpenTelemetry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, NamedTuple

from semel.engine.events import WorkerEvent, WorkerEventType
from semel.engine.protocol import Observer

MOST_SERIES: Final = 1000
"""Combinations of labels that one counter has, at most; what comes after them is counted together."""
OTHER: Final = "(other)"


class Described(NamedTuple):
    """A metric: its type, its labels, and what it says."""

    type: str
    labels: tuple[str, ...]
    help: str


METRICS: Final[Mapping[str, Described]] = {
    "semel_executions_total": Described(
        "counter", ("kind", "name", "queue", "status"), "Executions and messages that ended in this process"
    ),
    "semel_execution_seconds": Described(
        "histogram", ("kind", "name"), "How long the last attempt of an execution, or a message, took"
    ),
    "semel_retries_total": Described("counter", ("kind", "name", "queue"), "Attempts that failed and are retried"),
    "semel_duplicates_total": Described(
        "counter", ("kind", "name", "reason"), "Starts and messages that did not run again"
    ),
    "semel_leases_lost_total": Described("counter", (), "Results that were refused since others have the execution"),
    "semel_recovered_total": Described(
        "counter", (), "Executions of dead workers that were put back into their queues"
    ),
    "semel_parked_total": Described("counter", ("kind", "name"), "Workflows and entities whose code could not go on"),
    "semel_loop_blocked_total": Described("counter", (), "Times that code held up the event loop"),
    "semel_engine_errors_total": Described("counter", ("verb", "error"), "Calls of the engine that raised"),
    "semel_sweeper_rows_total": Described(
        "counter", ("sweeper", "outcome"), "Stuck rows that sweepers found in this process"
    ),
    "semel_sweeper_recovered_total": Described(
        "counter", ("sweeper",), "Stuck rows that sweepers started in this process"
    ),
    "semel_queue_pending": Described("gauge", ("queue",), "Executions that wait for a worker and for nothing else"),
    "semel_queue_oldest_pending_seconds": Described("gauge", ("queue",), "How long the oldest of them has waited"),
    "semel_workers": Described("gauge", (), "Workers that hold a lease"),
    "semel_schedules_late": Described("gauge", (), "Schedules that have been due for over a minute"),
    "semel_schedules_most_late_seconds": Described("gauge", (), "How long the latest of them has been due"),
    "semel_sweeper_stuck": Described("gauge", ("sweeper",), "Rows that the last run of a sweeper found stuck"),
    "semel_sweeper_unrecovered": Described(
        "gauge", ("sweeper",), "Rows of its last run that completed although stuck, or could not be started"
    ),
    "semel_sweeper_last_run_timestamp_seconds": Described("gauge", ("sweeper",), "When a sweeper ran last"),
    "semel_sweeper_last_run_failed": Described(
        "gauge", ("sweeper",), "1 if the last run of a sweeper did not complete"
    ),
    "semel_events_parked": Described("gauge", (), "Events that are parked"),
    "semel_outbox_pending": Described("gauge", ("database",), "Rows of an outbox that wait for a relay"),
    "semel_outbox_oldest_pending_seconds": Described("gauge", ("database",), "How long the oldest of them has waited"),
    "semel_outbox_retries_total": Described(
        "counter", ("database",), "Tries of outbox rows that failed and are retried"
    ),
    "semel_outbox_failed": Described("gauge", ("database",), "Rows of an outbox that failed for good"),
    "semel_gauges_failed_total": Described(
        "counter", (), "Scrapes that had no gauges, since the engine did not answer"
    ),
}
"""Every metric. Those of an outbox are measured by processes with a relay."""


class Counting(Observer, ABC):
    """An observer that counts what it hears. A label with very many values, such as a queue for each tenant, is cut."""

    def __init__(self) -> None:
        self._series: dict[str, set[tuple[str, ...]]] = {name: set() for name in METRICS}

    @abstractmethod
    def add(self, name: str, count: float, labels: dict[str, str]) -> None:
        """Add to a counter."""

    @abstractmethod
    def time(self, seconds: float, labels: dict[str, str]) -> None:
        """How long an execution, or a message, took."""

    def count(self, name: str, count: float, /, **labels: str) -> None:
        """Add to a counter."""
        self.add(name, count, self._bounded(name, labels))

    def _bounded(self, name: str, labels: dict[str, str]) -> dict[str, str]:
        """The labels, or what stands for those that are too many."""
        known, values = self._series[name], tuple(labels.values())
        if values not in known:
            if len(known) >= MOST_SERIES:
                return dict.fromkeys(labels, OTHER)
            known.add(values)
        return labels

    def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
        """See Observer."""
        if isinstance(error, Exception):
            self.count("semel_engine_errors_total", 1, verb=verb, error=type(error).__name__)

    def event(self, event: WorkerEvent) -> None:
        """See Observer."""
        kind, name, queue = event.kind, event.name, event.queue
        match event.type:
            case WorkerEventType.ENDED:
                status = "unknown" if event.status is None else event.status.value
                self.count("semel_executions_total", 1, kind=kind, name=name, queue=queue, status=status)
                if event.seconds is not None:
                    self.time(event.seconds, self._bounded("semel_execution_seconds", {"kind": kind, "name": name}))
            case WorkerEventType.RETRIED:
                self.count("semel_retries_total", 1, kind=kind, name=name, queue=queue)
            case WorkerEventType.DUPLICATE:
                self.count("semel_duplicates_total", event.count, kind=kind, name=name, reason=event.reason)
            case WorkerEventType.LEASE_LOST:
                self.count("semel_leases_lost_total", event.count)
            case WorkerEventType.RECOVERED:
                self.count("semel_recovered_total", event.count)
            case WorkerEventType.PARKED:
                self.count("semel_parked_total", 1, kind=kind, name=name)
            case WorkerEventType.LOOP_BLOCKED:
                self.count("semel_loop_blocked_total", 1)
            case WorkerEventType.SWEPT:
                self.count("semel_sweeper_rows_total", event.count, sweeper=name, outcome=event.reason)
                if event.reason == "started":
                    self.count("semel_sweeper_recovered_total", event.count, sweeper=name)
            case _:
                pass
