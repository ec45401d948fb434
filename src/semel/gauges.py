"""What is measured by looking: how far workers are behind, late schedules, stuck rows, parked events, outboxes."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from semel.contract.durations import format_duration, parse_duration
from semel.contract.lifecycle import Status
from semel.engine.protocol import Engine, Finding
from semel.errors import ConfigError, EngineError, SemelError
from semel.metric_definitions import OTHER

if TYPE_CHECKING:
    from semel.app import App
    from semel.transactional.outbox.relay import Relay

log = logging.getLogger("semel.metrics")
LONG: Final = 300.0
"""Seconds after which something that waits for a worker is a finding of `semel doctor`, as it is an alert."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A value that was measured now. Its name is that of a metric in `METRICS` of `semel.metrics`."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


MOST_QUEUES: Final = 500
"""Queues that have gauges of their own, those whose oldest work has waited longest; the others are one."""
FRESH: Final = 10.0
"""Seconds for which gauges are kept: to ask for them within that time costs nothing."""
GaugeSource = Callable[[], Awaitable[Iterable[Sample]]]
"""Something that measures. It must be cheap: it is called for a scrape, at most every few seconds."""


class KeptGauges:
    """What was measured last. It is measured again when somebody asks, every ten seconds at most."""

    def __init__(self) -> None:
        self.samples: tuple[Sample, ...] = ()
        self._until = 0.0
        self._looking = asyncio.Lock()

    def is_fresh(self) -> bool:
        """Is it too early to measure again?"""
        return time.monotonic() < self._until

    async def refresh(self, app: App, seconds: float) -> bool:
        """Measure, for so many seconds at most, unless that was done just now. False: the engine does not answer."""
        async with self._looking:
            if self.is_fresh():
                return True
            found, error = await measure(app, seconds)
            self.samples, self._until = tuple(found), time.monotonic() + FRESH
            if error is not None:
                log.warning("no gauges of the engine: %s: %s", type(error).__name__, error)
            return error is None


async def measure(app: App, seconds: float) -> tuple[list[Sample], Exception | None]:
    """Look at everything once, all at the same time: the samples, and why there are none of the engine, if so.

    What does not answer within so many seconds is left out, and keeps nothing else waiting: an outbox is watched also
    while the engine is away.
    """
    engine = asyncio.ensure_future(_within(seconds, _measure_engine(app)))
    others = [_measure_outboxes(app, seconds), *(_measure_source(one, seconds) for one in app.gauge_sources)]
    found = [sample for some in await asyncio.gather(*others) for sample in some]
    try:
        return [*await engine, *found], None
    except (TimeoutError, SemelError) as error:
        return found, error


async def _within(seconds: float, looking: Awaitable[Iterable[Sample]]) -> Iterable[Sample]:
    async with asyncio.timeout(seconds):
        return await looking


async def _measure_source(source: GaugeSource, seconds: float) -> Iterable[Sample]:
    try:
        return list(await _within(seconds, source()))
    except Exception as error:
        log.warning("a source of gauges failed, and its metrics are missing: %s: %s", type(error).__name__, error)
        return []


async def _measure_engine(app: App) -> list[Sample]:
    found: list[Sample] = []
    lags = sorted(await app.engine.queue_lags(), key=lambda lag: lag.oldest or 0.0, reverse=True)
    for lag in lags[:MOST_QUEUES]:
        labels = {"queue": lag.name}
        found.append(Sample("semel_queue_pending", lag.pending, labels))
        found.append(Sample("semel_queue_oldest_pending_seconds", lag.oldest or 0.0, labels))
    if rest := lags[MOST_QUEUES:]:
        found.append(Sample("semel_queue_pending", sum(lag.pending for lag in rest), {"queue": OTHER}))
        found.append(Sample("semel_queue_oldest_pending_seconds", rest[0].oldest or 0.0, {"queue": OTHER}))
    for source in (_measure_workers, _measure_schedules, _measure_sweepers, _measure_events):
        with suppress(ConfigError):  # a cluster without records has no schedules and no events
            found += await source(app)
    return found


async def _measure_outboxes(app: App, seconds: float) -> list[Sample]:
    """Those that relays of this process serve; each database once, however many relays it has."""
    relays: dict[str, list[Relay]] = {}
    for relay in app.relays:
        relays.setdefault(relay.database, []).append(relay)
    looks = [functools.partial(_measure_outbox, some) for some in relays.values()]
    found = await asyncio.gather(*(_measure_source(look, seconds) for look in looks))
    retries = [
        Sample("semel_outbox_retries_total", sum(one.counters.retried for one in some), {"database": name})
        for name, some in relays.items()
    ]
    return [*retries, *(sample for some in found for sample in some)]


async def _measure_outbox(relays: Sequence[Relay]) -> list[Sample]:
    counts, labels = await relays[0].measure(), {"database": relays[0].database}
    return [
        Sample("semel_outbox_pending", counts.pending, labels),
        Sample("semel_outbox_oldest_pending_seconds", counts.oldest, labels),
        Sample("semel_outbox_failed", counts.failed, labels),
    ]


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
