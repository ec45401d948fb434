"""Metrics for OpenTelemetry, under the names that Prometheus has them by. Needs `semel[otel]`: the API, no SDK."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import logging
import weakref
from collections.abc import Iterable
from typing import Final

from semel.app import App
from semel.errors import ConfigError
from semel.gauges import KeptGauges
from semel.metric_definitions import METRICS, Counting

try:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider
except ImportError as error:
    raise ConfigError("metrics for OpenTelemetry need the extra: pip install 'semel[otel]'.") from error

log = logging.getLogger("semel.metrics")
PATIENCE: Final = 5.0
"""Seconds that a reader waits for gauges; what has not answered by then is missing."""


class OtelMetrics(Counting):
    """The metrics of one app: `OtelMetrics(app)`, once, before the app is used.

    Instruments are made by the meter provider of the process, or the one that is given. Counters are of this process;
    gauges are of the whole engine, and are measured when a reader collects, in an event loop that uses the app.
    """

    def __init__(self, app: App, meter_provider: MeterProvider | None = None) -> None:
        super().__init__()
        meter = (meter_provider or get_meter_provider()).get_meter("semel")
        self._app = weakref.ref(app)
        self._looking: asyncio.Task[None] | None = None
        self._gauges = KeptGauges()
        self._counters = {}
        for name, one in METRICS.items():
            look = [functools.partial(self._read, name)]
            if one.type == "gauge":
                meter.create_observable_gauge(name, look, description=one.help)
            elif name.startswith("semel_outbox"):
                meter.create_observable_counter(name, look, description=one.help)
            elif one.type == "counter":
                self._counters[name] = meter.create_counter(name, description=one.help)
        seconds = METRICS["semel_execution_seconds"]
        self._seconds = meter.create_histogram("semel_execution_seconds", unit="s", description=seconds.help)
        app.add_observer(self)

    def add(self, name: str, count: float, labels: dict[str, str]) -> None:
        """See Counting."""
        self._counters[name].add(count, labels)

    def time(self, seconds: float, labels: dict[str, str]) -> None:
        """See Counting."""
        self._seconds.record(seconds, labels)

    def _read(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        """A reader collects, in a thread of its own. All gauges of one collection come from one look."""
        self._refresh()
        return [Observation(one.value, dict(one.labels)) for one in self._gauges.samples if one.name == name]

    def _refresh(self) -> None:
        app = self._app()
        if app is None or self._gauges.is_fresh():
            return
        loop = app._running_loop()
        if loop is None:
            return
        looking = self._measure(app)
        if asyncio._get_running_loop() is loop:  # nobody can wait for it here: the next collection has it
            self._looking = loop.create_task(looking)
            return
        try:
            asyncio.run_coroutine_threadsafe(looking, loop).result(PATIENCE * 2)
        except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError, RuntimeError) as error:
            looking.close()
            log.warning("no gauges for OpenTelemetry: %s: %s", type(error).__name__, error)

    async def _measure(self, app: App) -> None:
        if not await self._gauges.refresh(app, PATIENCE):
            self.count("semel_gauges_failed_total", 1)
