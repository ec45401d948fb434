"""What is measured by looking: how far workers are behind, late schedules, stuck rows, parked events."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from semel.contract.durations import format_duration, parse_duration
from semel.contract.lifecycle import Status
from semel.engine.protocol import Engine, Finding
from semel.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from semel.app import App

log = logging.getLogger("semel.metrics")
LONG: Final = 300.0
"""Seconds after which something that waits for a worker is a finding of `semel doctor`, as it is an alert."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A value that was measured now. Its name is that of a metric in `METRICS` of `semel.metrics`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


GaugeSource = Callable[[], Awaitable[Iterable[Sample]]]
"""Something that measures. It must be cheap: it is called for a scrape, at most every few seconds."""


async def measure(app: App) -> list[Sample]:
    """Look at everything once. What cannot be looked at is left out; EngineError: the engine does not answer."""
    found: list[Sample] = []
    for lag in await app.engine.queue_lags():
        labels = {"queue": lag.name}
        found.append(Sample("semel_queue_pending", lag.pending, labels))
        found.append(Sample("semel_queue_oldest_pending_seconds", lag.oldest or 0.0, labels))
    for source in (_measure_workers, _measure_schedules, _measure_sweepers, _measure_events):
        with suppress(ConfigError):  # a cluster without records has no schedules and no events
            found += await source(app)
    for own in app.gauge_sources:
        try:
            found += await own()
        except Exception as error:
            log.warning("a source of gauges failed, and its metrics are missing: %s: %s", type(error).__name__, error)
    return found


async def _measure_workers(app: App) -> Sequence[Sample]:
    try:
        return [Sample("semel_workers", len(await app.engine.workers()))]
    except EngineError:  # a server that keeps no list of workers
        return []


async def _measure_schedules(app: App) -> Sequence[Sample]:
    count, seconds = await (await app.engine.schedules()).count_late()
    return [Sample("semel_schedules_late", count), Sample("semel_schedules_most_late_seconds", seconds)]


async def _measure_sweepers(app: App) -> Sequence[Sample]:
    found = []
    for state in await app.sweepers.own():
        labels = {"sweeper": state.name}
        if state.last_run is not None:
            at, failed = state.last_run.timestamp(), state.status is not Status.COMPLETED
            found.append(Sample("semel_sweeper_last_run_timestamp_seconds", at, labels))
            found.append(Sample("semel_sweeper_last_run_failed", failed, labels))
        if state.report is not None:
            lost = state.report.completed + state.report.error
            found.append(Sample("semel_sweeper_stuck", state.report.stuck, labels))
            found.append(Sample("semel_sweeper_unrecovered", lost, labels))
    return found


async def _measure_events(app: App) -> Sequence[Sample]:
    return [Sample("semel_events_parked", await (await app.engine.events()).count_parked())]


async def examine_lags(engine: Engine) -> Sequence[Finding]:
    """What doctor says of queues whose oldest work has waited for a worker for over five minutes."""
    try:
        lags = await engine.queue_lags()
    except EngineError:
        return []  # what is wrong with the engine is a finding of its own
    late = [lag for lag in lags if lag.oldest is not None and lag.oldest > LONG]
    told = ", ".join(
        f"{lag.name} ({lag.pending} pending, the oldest for {format_duration(parse_duration(int(lag.oldest or 0)))})"
        for lag in late
    )
    if not late:
        return [Finding(True, "lag", f"nothing waits for a worker for over {LONG / 60:.0f} minutes")]
    why = "start more workers for it, or see what holds them up: semel workers, semel list --status running"
    return [Finding(False, "lag", f"{told}: {why}")]
