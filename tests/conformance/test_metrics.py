"""Metrics count what happens and measure what waits, under the names that Prometheus is told of."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest, parser

import semel
from semel import metrics as module
from semel.gauges import Sample
from semel.metrics import METRICS, Metrics
from tests.world import SOON, World, ended, eventually, waits


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a scrape waits."""
    monkeypatch.setattr(module, "PATIENCE", SOON)


def read(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name and the values of their labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in parser.text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def scrape(metrics: Metrics, app: semel.App) -> dict[str, dict[tuple[str, ...], float]]:
    metrics._gauges._until = 0.0  # as if time had passed
    return read(await metrics.text(app))


async def test_counters_count_what_this_process_does(world: World) -> None:
    metrics = Metrics()
    app = world.app(observer=metrics)

    @app.task(retry=semel.Retry(max_attempts=2, initial="10ms"))
    async def charge(order: str) -> str:
        if order == "bad":
            raise ValueError("no")
        return order

    async with world.worker(app):
        first = await app.enqueue(charge, "o-1", task_id="o-1")
        await first.result("60s")
        await app.enqueue(charge, "o-1", task_id="o-1")
        bad = await app.enqueue(charge, "bad")
        await world.advance("1s")
        await ended(bad)

        def told() -> bool:
            found = read(generate_latest(metrics.registry))
            return sum(found.get("semel_executions_total", {}).values()) >= 2

        await eventually(told)
    found = await scrape(metrics, app)
    assert found["semel_executions_total"] == {
        ("task", "charge", "default", "completed"): 1.0,
        ("task", "charge", "default", "failed"): 1.0,
    }
    assert found["semel_retries_total"] == {("task", "charge", "default"): 1.0}
    assert found["semel_duplicates_total"] == {("task", "charge", "replayed"): 1.0}
    assert found["semel_execution_seconds_count"][("task", "charge")] >= 1


async def test_gauges_measure_what_waits(world: World) -> None:
    metrics = Metrics()
    app = world.app(observer=metrics)

    @app.task(queue="slow")
    async def charge(order: str) -> None: ...

    await app.schedules.put("daily", charge, "o", every="1h")
    for number in range(3):
        await app.enqueue(charge, f"o-{number}")
    found: dict[str, Any] = {}

    async def measured() -> bool:
        nonlocal found
        found = await scrape(metrics, app)
        return bool(found.get("semel_queue_pending", {}).get(("slow",)) == 3)

    await eventually(measured)
    assert found["semel_queue_oldest_pending_seconds"][("slow",)] >= 0
    assert found["semel_schedules_late"] == {(): 0.0}
    assert found["semel_events_parked"] == {(): 0.0}
    assert found["semel_workers"] == {(): 0.0}
    assert "semel_sweeper_stuck" not in found


@pytest.mark.journal("a test cannot move the clock of a cluster")
async def test_the_oldest_pending_has_its_age(world: World) -> None:
    metrics = Metrics()
    app = world.app(observer=metrics)

    @app.task
    async def charge(order: str) -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.wait_signal("go")

    await app.schedules.put("daily", charge, "o", every="1h", start_at=world.now() + timedelta(hours=1))
    await app.enqueue(charge, "later", delay="2h")
    assert (await scrape(metrics, app))["semel_queue_oldest_pending_seconds"] == {("default",): 0.0}
    await app.enqueue(charge, "now")
    await world.advance("10m")
    found = await scrape(metrics, app)
    assert found["semel_queue_pending"] == {("default",): 1.0}
    assert 600 <= found["semel_queue_oldest_pending_seconds"][("default",)] < 700
    assert not {one.what: one.ok for one in await app.doctor()}["lag"]
    await world.advance("52m")
    found = await scrape(metrics, app)
    assert found["semel_schedules_late"] == {(): 1.0}
    assert 60 < found["semel_schedules_most_late_seconds"][()] < 4000


@pytest.mark.journal("about the tables of a journal")
async def test_a_workflow_that_was_woken_is_not_taken_for_old(world: World) -> None:
    """It began days ago, and has been ready for a moment."""
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await ctx.wait_signal("go")

    handle = await app.start_workflow(flow, workflow_id="f-1")
    async with world.worker(app):
        await waits(handle)
    await world.advance("3d")
    await handle.signal("go")
    (lag,) = await app.engine.queue_lags()
    assert (lag.pending, lag.oldest) == (1, None)
    assert {one.what: one.ok for one in await app.doctor()}["lag"]


async def test_sweepers_are_measured_and_counted(world: World) -> None:
    metrics = Metrics()
    app = world.app(observer=metrics)

    @app.task
    async def activate(id: int) -> None: ...

    @app.sweeper("stuck", start_at=world.now() + timedelta(hours=1))
    def stuck(sweep: semel.Sweep) -> Iterator[semel.Stuck]:
        yield from (semel.Stuck(f"tenant-{id}", activate, id) for id in range(3))

    await app.apply()
    assert "semel_sweeper_stuck" not in await scrape(metrics, app)
    async with world.worker(app):
        await app.schedules.trigger("stuck")

        async def reported() -> bool:
            return (await app.sweepers.get("stuck")).report is not None

        await eventually(reported)
    found = await scrape(metrics, app)
    assert found["semel_sweeper_stuck"] == {("stuck",): 3.0}
    assert found["semel_sweeper_unrecovered"] == {("stuck",): 0.0}
    assert found["semel_sweeper_last_run_failed"] == {("stuck",): 0.0}
    assert found["semel_sweeper_recovered_total"] == {("stuck",): 3.0}
    assert found["semel_sweeper_rows_total"] == {("started", "stuck"): 3.0}


async def test_scrapes_share_a_look_and_sources_are_asked(world: World) -> None:
    metrics = Metrics()
    app = world.app(observer=metrics)
    asked = 0

    async def outbox() -> list[Sample]:
        nonlocal asked
        asked += 1
        labels = {"database": "shop"}
        return [
            Sample("semel_outbox_pending", 7, labels),
            Sample("semel_outbox_oldest_pending_seconds", 12.5, labels),
            Sample("semel_outbox_retries_total", 3, labels),
            Sample("semel_outbox_failed", 1, labels),
        ]

    async def broken() -> list[Sample]:
        raise RuntimeError("no")

    app.gauge_sources += [broken, outbox]
    texts = await asyncio.gather(*[metrics.text(app) for _ in range(5)])
    assert asked == 1
    found = read(texts[0])
    assert found["semel_outbox_pending"] == {("shop",): 7.0}
    assert found["semel_outbox_retries_total"] == {("shop",): 3.0}
    assert found["semel_outbox_failed"] == {("shop",): 1.0}


async def test_every_metric_that_is_shown_is_described(world: World) -> None:
    metrics = Metrics()
    app = world.app(observer=metrics)
    shown = re.findall(r"(?m)^# TYPE (\w+) ", (await metrics.text(app)).decode())
    assert {re.sub("_(total|created)$", "", name) for name in shown} <= {one.removesuffix("_total") for one in METRICS}


async def test_metrics_are_served(world: World) -> None:
    metrics = Metrics()
    app = world.app()
    app.add_observer(metrics)

    @app.task
    async def charge(order: str) -> None: ...

    await app.enqueue(charge, "o-1")
    with pytest.raises(semel.ConfigError, match="before the app is used"):
        app.add_observer(metrics)

    def get(port: int) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return bytes(answer.read())

    async with metrics.serve(app, 0) as port:

        async def shown() -> bool:
            metrics._gauges._until = 0.0  # as if time had passed: a cluster lists what is new a moment later
            return "semel_queue_pending" in read(await asyncio.to_thread(get, port))

        await eventually(shown)
        with pytest.raises(semel.ConfigError, match="cannot be served"):
            async with Metrics().serve(app, port):
                pass


def test_two_observers_hear_all_and_one_that_raises_harms_no_other(sqlite_world: World) -> None:
    heard: list[str] = []

    class Heard(semel.Observer):
        def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
            heard.append(verb)

    class Broken(semel.Observer):
        def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
            raise RuntimeError("no")

    app = sqlite_world.app(observer=Broken())
    app.add_observer(Heard())
    app.sync.migrate()
    app.sync.close()
    assert "migrate" in heard
