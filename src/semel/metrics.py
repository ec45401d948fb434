"""Metrics for Prometheus: counters of what this process does, gauges of what waits. Needs `semel[prometheus]`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from semel.app import App
from semel.engine.events import WorkerEvent, WorkerEventType
from semel.engine.protocol import Observer
from semel.errors import ConfigError, SemelError
from semel.gauges import Sample, measure

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigError("metrics need the extra: pip install 'semel[prometheus]'.") from error

log = logging.getLogger("semel.metrics")
FRESH: Final = 10.0
"""Seconds for which gauges are kept: scrapes within that time cost nothing."""
PATIENCE: Final = 5.0
"""Seconds that a scrape waits for gauges; without an answer it has the counters only."""


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
"""Every metric. Those of an outbox are filled in by a source in `app.gauge_sources`."""


class Metrics(Observer):
    """The metrics of one app: `metrics = Metrics(); app = semel.App(observer=metrics)`.

    Counters are of this process alone; gauges are of the whole engine, the same whichever process is asked.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = CollectorRegistry() if registry is None else registry
        self._counters = {
            name: Counter(name, one.help, one.labels, registry=self.registry)
            for name, one in METRICS.items()
            if one.type == "counter" and not name.startswith("semel_outbox")
        }
        seconds = METRICS["semel_execution_seconds"]
        self._seconds = Histogram("semel_execution_seconds", seconds.help, seconds.labels, registry=self.registry)
        self._gauges = _Gauges()
        self.registry.register(self._gauges)
        self._looking = asyncio.Lock()

    # What an observer hears.

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
                    self._seconds.labels(kind, name).observe(event.seconds)
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

    def count(self, name: str, count: float, /, **labels: str) -> None:
        """Add to a counter."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(count)

    # Gauges.

    async def refresh(self, app: App) -> None:
        """Look at the gauges, unless that was done within the last ten seconds. An engine that is away is counted."""
        async with self._looking:
            if self._gauges.is_fresh():
                return
            try:
                async with asyncio.timeout(PATIENCE):
                    self._gauges.take(await measure(app))
            except (TimeoutError, SemelError) as error:
                self._gauges.take(())
                self.count("semel_gauges_failed_total", 1)
                log.warning("no gauges for this scrape: %s: %s", type(error).__name__, error)

    async def text(self, app: App) -> bytes:
        """All metrics in the text format of Prometheus, for a route of your own: `/metrics`."""
        await self.refresh(app)
        return generate_latest(self.registry)

    @asynccontextmanager
    async def serve(self, app: App, port: int, host: str = "127.0.0.1") -> AsyncIterator[int]:
        """Serve `/metrics` while the block runs; the port. 0 takes a free one. ConfigError: the port is taken."""
        loop = asyncio.get_running_loop()

        def refresh() -> None:
            """In the thread of a scrape."""
            asyncio.run_coroutine_threadsafe(self.refresh(app), loop).result(PATIENCE * 2)

        try:
            server, thread = start_http_server(port, host, self.registry)
        except OSError as error:
            raise ConfigError(f"metrics cannot be served on {host}:{port}: {error.strerror or error}.") from error
        self._gauges.before = refresh
        try:
            yield server.server_port
        finally:
            self._gauges.before = None
            await asyncio.to_thread(_stop, server, thread)


def _stop(server: Any, thread: Any) -> None:
    server.shutdown()
    server.server_close()
    thread.join(PATIENCE)


class _Gauges(Collector):
    """The gauges as they were looked at last."""

    def __init__(self) -> None:
        self._samples: tuple[Sample, ...] = ()
        self._until = 0.0
        self.before: Any = None
        """Called before each scrape by another thread."""

    def is_fresh(self) -> bool:
        return time.monotonic() < self._until

    def take(self, samples: Iterable[Sample]) -> None:
        self._samples = tuple(samples)
        self._until = time.monotonic() + FRESH

    def describe(self) -> Iterable[Metric]:
        """None by name: a registry would ask for values otherwise."""
        return ()

    def collect(self) -> Iterable[Metric]:
        if self.before is not None and not self.is_fresh():
            try:
                self.before()
            except Exception as error:
                log.warning("no gauges for this scrape: %s: %s", type(error).__name__, error)
        families: dict[str, Metric] = {}
        for sample in self._samples:
            one = METRICS.get(sample.name)
            if one is None:
                continue
            if sample.name not in families:
                family = CounterMetricFamily if one.type == "counter" else GaugeMetricFamily
                families[sample.name] = family(sample.name.removesuffix("_total"), one.help, labels=one.labels)
            values = [sample.labels.get(label, "") for label in one.labels]
            families[sample.name].add_metric(values, sample.value)  # type: ignore[attr-defined]
        return families.values()
