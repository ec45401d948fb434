"""The trace of whoever wrote a row: it travels in the row, and what the relay starts belongs to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import semel
from semel.testing.temporal_server import TemporalServer, temporal_server
from semel.transactional.outbox.trace import MOST, current_trace
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import World

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> TracerProvider:
    """The provider of this process, for one test."""
    made = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(trace, "get_tracer", lambda name, *more, **options: made.get_tracer(name))
    return made


@pytest.fixture
def spans(provider: TracerProvider) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


async def test_every_row_belongs_to_the_trace_of_its_writer(
    world: World, place: Place, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    shop = OutboxShop(world, place)
    points = shop.app.entity(shop.points, "ada")
    event = semel.EventEnvelope(event_id="evt-1", source="/shop", type="order.made", data={})
    with provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
        async with place.transaction() as connection:
            await shop.app.enqueue(shop.ship, 1, task_id="ship:1", connection=connection)
            flow = await shop.app.start_workflow(shop.approve, 1, workflow_id="approve:1", connection=connection)
            await flow.signal("answer", "yes", connection=connection)
            await points.send(shop.points.add, 5, connection=connection)
            await shop.app.publish(event, connection=connection)
            await flow.cancel(connection=connection)
            await shop.app.outbox.add("mail.wanted", {"to": "ada"}, connection=connection)
    await shop.relay_all()
    assert await place.statuses() == ["processed"] * 7
    made = spans.get_finished_spans()
    assert {one.context.trace_id for one in made} == {checkout.get_span_context().trace_id}
    kinds = ["semel.cancel", "semel.publish", "semel.send", "semel.signal", "semel.start", "semel.start"]
    assert sorted(one.name for one in made) == ["checkout", *(f"relay {kind}" for kind in kinds)]
    assert all(one.parent.span_id == checkout.get_span_context().span_id for one in made if one.parent is not None)
    assert [one.payload for one in shop.handled] == [{"to": "ada"}], "a row of the caller's own is left as it is"
    await shop.app.close()


async def test_a_start_that_fails_is_an_error_in_its_trace(
    world: World, sqlite_place: Place, spans: InMemorySpanExporter
) -> None:
    """From plain SQL too, in any language: `trace` holds the headers."""
    shop = OutboxShop(world, sqlite_place)
    for arguments in ('{"order": 9}', '{"colour": 9}'):
        payload = f'{{"name": "ship", "arguments": {arguments}, "trace": {{"traceparent": "{PARENT}"}}}}'
        await sqlite_place.sql(f"insert into outbox_events (event_type, payload) values ('semel.task', '{payload}')")
    await shop.relay_all()
    assert sorted(await sqlite_place.statuses()) == ["pending", "processed"]
    found = {one.status.is_ok for one in spans.get_finished_spans()}
    assert found == {True, False}
    assert {f"{one.context.trace_id:032x}" for one in spans.get_finished_spans()} == {PARENT.split("-")[1]}
    await shop.app.close()


@pytest.mark.parametrize("given", ["7", '{"traceparent": "nonsense"}', '{"a": 1}', "null"])
async def test_what_is_no_trace_is_in_nobodys_way(
    world: World, sqlite_place: Place, spans: InMemorySpanExporter, given: str
) -> None:
    shop = OutboxShop(world, sqlite_place)
    start = await shop.order(1)
    await sqlite_place.sql(f"update outbox_events set payload = json_set(payload, '$.trace', json('{given}'))")
    await shop.relay_all()
    (row,) = await shop.app.outbox.list()
    assert (
        row.status == "processed" or "cannot be read" in str(row.last_error) or "hold no request" in str(row.last_error)
    )
    assert start.key == "ship:1"
    await shop.app.close()


async def test_without_a_span_nothing_is_written(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    await shop.order(1)
    ((payload,),) = await sqlite_place.sql("select payload from outbox_events")
    assert "trace" not in json.loads(payload)
    await shop.app.close()


def test_a_long_state_is_left_out(provider: TracerProvider) -> None:
    state = trace.TraceState([("vendor", "x" * 250), ("other", "y" * 250), ("third", "z" * 250)])
    parent = trace.SpanContext(1, 2, True, trace.TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(parent)):
        found = current_trace()
    assert found is not None
    assert list(found) == ["traceparent"]
    assert all(len(value) <= MOST for value in found.values())


def test_opentelemetry_is_not_imported_where_nobody_uses_it(tmp_path: Path) -> None:
    program = """
import sqlite3, sys, semel
app = semel.App("sqlite:///engine.db", config=None, outbox="sqlite:///shop.db")
@app.task
def ship(order: int) -> None: ...
db = sqlite3.connect("shop.db")
app.sync.outbox.init()
with db:
    db.execute("create table orders (id integer)")
    db.execute("insert into orders values (1)")
    app.sync.enqueue(ship, 1, task_id="k", connection=db)
app.sync.close()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TemporalServer]:
    with temporal_server(tmp_path) as server:
        yield server


@pytest.mark.slow
def test_on_temporal_the_whole_run_belongs_to_it(
    cluster: TemporalServer, sqlite_place: Place, provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    """By Temporal's own interceptor: from the request over the relay to the workflow and its activity."""
    from temporalio.contrib.opentelemetry import TracingInterceptor

    async def main() -> int:
        tracer = provider.get_tracer("shop")
        app = semel.App(
            cluster.url("default"), config=None, outbox=sqlite_place.url, auto_migrate=True,
            interceptors=[TracingInterceptor(tracer)],
        )  # fmt: skip

        @app.task
        async def ship(order: int) -> int:
            return order

        with tracer.start_as_current_span("checkout") as checkout:
            async with sqlite_place.transaction() as connection:
                handle = await app.enqueue(ship, 7, task_id="ship:7", connection=connection)
        async with app.relay(), app.worker():
            assert await handle.result(timeout=60) == 7
        await app.close()
        return checkout.get_span_context().trace_id

    expected = asyncio.run(main())
    found = {one.name: one.context.trace_id for one in spans.get_finished_spans()}
    assert len(found) >= 4
    assert set(found.values()) == {expected}
    assert "relay semel.start" in found
