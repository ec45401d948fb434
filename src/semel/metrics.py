"""Metrics for Prometheus: counters of what this process does, gauges of what waits. Needs `semel[prometheus]`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from semel.app import App
from semel.errors import ConfigError
from semel.gauges import KeptGauges
from semel.metric_definitions import METRICS, Counting

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigError("metrics need the extra: pip install 'semel[prometheus]'.") from error

log = logging.getLogger("semel.metrics")
PATIENCE: Final = 5.0
"""Seconds that a scrape waits for gauges; what has not answered by then is missing from it."""


class Metrics(Counting):
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
        super().__init__()

    def add(self, name: str, count: float, labels: dict[str, str]) -> None:
        """See Counting."""
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(count)

    def time(self, seconds: float, labels: dict[str, str]) -> None:
        """See Counting."""
        self._seconds.labels(**labels).observe(seconds)

    async def refresh(self, app: App) -> None:
        """Look at the gauges, unless that was done within the last ten seconds. An engine that is away is counted."""
        if not await self._gauges.refresh(app, PATIENCE):
            self.count("semel_gauges_failed_total", 1)

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


class _Gauges(KeptGauges, Collector):
    """The gauges as they were looked at last."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Any = None
        """Called before each scrape by another thread."""

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
        for sample in self.samples:
            one = METRICS.get(sample.name)
            if one is None:
                continue
            if sample.name not in families:
                family = CounterMetricFamily if one.type == "counter" else GaugeMetricFamily
                families[sample.name] = family(sample.name.removesuffix("_total"), one.help, labels=one.labels)
            values = [sample.labels.get(label, "") for label in one.labels]
            families[sample.name].add_metric(values, sample.value)  # type: ignore[attr-defined]
        return families.values()
