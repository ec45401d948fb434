"""An outbox is watched by the processes that relay it: gauges for Prometheus and OpenTelemetry, at a port of theirs."""

from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import parser

import semel
from semel import gauges, metric_definitions, metrics, otel
from semel.metric_definitions import METRICS, OTHER
from semel.metrics import Metrics
from semel.otel import OtelMetrics
from tests.cli import shell
from tests.cli.test_worker_metrics import free_ports
from tests.outbox.places import Place
from tests.world import SOON, World, eventually

Values = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a scrape waits."""
    monkeypatch.setattr(metrics, "PATIENCE", SOON)
    monkeypatch.setattr(otel, "PATIENCE", SOON)


def read(text: str) -> Values:
    found: Values = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def scrape(watch: Metrics, app: semel.App) -> Values:
    watch._gauges._until = 0.0  # as if time had passed
    return read((await watch.text(app)).decode())


def with_mail(app: semel.App) -> semel.App:
    @app.outbox_handler("mail")
    async def mail(event: semel.OutboxEvent) -> None:
        if event.payload == "bad":
            raise ValueError("no such address")

    return app


async def write(app: semel.App, place: Place, *texts: str, retries: int = 10) -> None:
    with app.outbox_options(max_retries=retries):
        async with place.transaction() as connection:
            for text in texts:
                await app.outbox.add("mail", text, connection=connection)


async def test_a_relay_measures_its_outbox(world: World, place: Place) -> None:
    watch = Metrics()
    app = with_mail(world.app(outbox=place.url, observer=watch))
    await write(app, place, "bad", "good", "good")
    await write(app, place, "bad", retries=1)
    assert "semel_outbox_pending" not in await scrape(watch, app)
    async with app.relay(place.url, place.url, poll="50ms") as relays:  # two relays of one outbox are one line
        name = (relays[0].database,)

        async def settled() -> bool:
            found = await scrape(watch, app)
            return (
                found["semel_outbox_failed"] == {name: 1.0}
                and found["semel_outbox_pending"] == {name: 1.0}
                and found["semel_outbox_retries_total"][name] >= 1
            )

        await eventually(settled)
        await place.sql("update outbox_events set created_at = '2026-01-01 00:00:00' where status = 'pending'")
        assert (await scrape(watch, app))["semel_outbox_oldest_pending_seconds"][name] > 86_400
        assert ":secret@" not in name[0]
    assert "semel_outbox_pending" not in await scrape(watch, app)


async def test_an_outbox_is_watched_while_the_engine_is_away(sqlite_place: Place) -> None:
    """That is when it grows. What does not answer keeps nothing else from being measured."""
    watch = Metrics()
    app = semel.App("postgresql://nobody@127.0.0.1:1/none", config=None, outbox=sqlite_place.url, observer=watch)

    async def slow() -> list[gauges.Sample]:
        await asyncio.sleep(600)
        return []

    async with app, app.relay():
        assert (await scrape(watch, app))["semel_outbox_pending"] == {(sqlite_place.url,): 0.0}
        app.gauge_sources.append(slow)
        found, error = await gauges.measure(app, 1.0)
        assert isinstance(error, semel.EngineUnavailable | TimeoutError)
        assert "semel_outbox_failed" in {sample.name for sample in found}
        app.gauge_sources.clear()  # a test waits long for gauges
        failed = (await scrape(watch, app))["semel_gauges_failed_total"]
    assert failed[()] >= 1


async def test_a_count_ends_at_a_hundred_thousand(world: World, sqlite_place: Place) -> None:
    app = world.app(outbox=sqlite_place.url)
    await sqlite_place.sql(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 100500) "
        "insert into outbox_events (event_type) select 'mail' from n"
    )
    assert (await app.outbox.state()).pending == 100_000


def test_labels_with_very_many_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_definitions, "MOST_SERIES", 3)
    watch = Metrics()
    for number in range(10):
        watch.count("semel_retries_total", 1, kind="task", name="charge", queue=f"tenant-{number}")
    text = asyncio.run(_text(watch))
    assert len(text["semel_retries_total"]) == 4
    assert text["semel_retries_total"][(OTHER, OTHER, OTHER)] == 7.0


async def _text(watch: Metrics) -> Values:
    async with semel.App("sqlite:///:memory:", config=None) as app:
        return await scrape(watch, app)


# OpenTelemetry.


def collect(reader: InMemoryMetricReader) -> dict[str, dict[tuple[str, ...], Any]]:
    """Values by name and labels, in the order in which Prometheus has the labels."""
    data: Any = reader.get_metrics_data()
    found: dict[str, dict[tuple[str, ...], Any]] = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    labels = tuple(str(point.attributes[label]) for label in METRICS[metric.name].labels)
                    found.setdefault(metric.name, {})[labels] = getattr(point, "value", getattr(point, "count", None))
    return found


async def test_opentelemetry_has_the_same_names(world: World, sqlite_place: Place) -> None:
    """Read by a thread, as an exporter does; and by the event loop itself, which cannot wait for a look."""
    reader, watch = InMemoryMetricReader(), Metrics()
    app = with_mail(world.app(outbox=sqlite_place.url))
    app.add_observer(watch)
    seen = OtelMetrics(app, MeterProvider(metric_readers=[reader], shutdown_on_exit=False))

    @app.task
    async def charge(cents: int) -> int:
        return cents

    await write(app, sqlite_place, "bad")
    async with world.worker(app), app.relay(poll="50ms") as (relay,):
        await (await app.enqueue(charge, 1, task_id="k")).result(timeout=SOON)
        await app.enqueue(charge, 1, task_id="k")
        await eventually(lambda: relay.counters.retried > 0)

        async def same() -> bool:
            seen._gauges._until = 0.0
            theirs, ours = await asyncio.to_thread(collect, reader), await scrape(watch, app)
            names = {"semel_executions_total", "semel_duplicates_total", "semel_outbox_pending"}
            names |= {"semel_outbox_retries_total", "semel_queue_pending", "semel_workers"}
            return all(theirs.get(name) == ours.get(name) is not None for name in names)

        await eventually(same)
        in_the_loop = collect(reader)
        assert in_the_loop["semel_outbox_failed"] == {(relay.database,): 0.0}
        assert set(in_the_loop) <= set(METRICS)
        assert in_the_loop["semel_execution_seconds"][("task", "charge")] == 1
    with pytest.raises(semel.ConfigError, match="before the app is used"):
        OtelMetrics(app)


async def test_nobody_reads_and_nothing_is_measured(world: World, sqlite_place: Place) -> None:
    app = world.app(outbox=sqlite_place.url)
    asked = 0

    async def source() -> list[gauges.Sample]:
        nonlocal asked
        asked += 1
        return []

    app.gauge_sources.append(source)
    OtelMetrics(app)  # without an SDK its instruments do nothing
    await app.migrate()
    async with app.relay(poll="10ms"):
        await asyncio.sleep(0.1)
    assert asked == 0


# At a shell.


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["relay", "worker"])
async def test_a_process_serves_them(command: str, world: World, sqlite_place: Place, tmp_path: Path) -> None:
    await world.app().migrate()
    name, port = shell.shop(world, tmp_path), free_ports(1)
    option = "--database" if command == "relay" else "--relay"
    arguments = [f"{name}:app", f"{option}={sqlite_place.url}", "--metrics-port", str(port)]
    running = shell.process(command, *arguments, cwd=tmp_path)
    try:
        await asyncio.to_thread(shell.await_line, running, "ready")

        async def shown() -> bool:
            text = await asyncio.to_thread(get, port)
            return f'semel_outbox_pending{{database="{sqlite_place.url}"}} 0.0' in text

        await eventually(shown)
        shell.ask_to_stop(running)
        assert await asyncio.to_thread(running.wait, 60) == 0
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()
