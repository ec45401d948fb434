"""A start in a transaction of another database: committed it is relayed, rolled back it never was."""

from __future__ import annotations

import pytest

import semel
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import SOON, World, eventually


async def test_committed_it_runs(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    handle = await shop.order(1)
    assert await world.count() == 0, "the call talks to no engine"
    with pytest.raises(semel.NotCommitted, match="no relay has taken"):
        await handle.result()
    await shop.relay_all()
    async with world.worker(shop.app):
        assert await handle.result(timeout=SOON) == "shipped 1"
    assert await place.statuses() == ["processed"]
    assert handle.duplicate is False
    (row,) = await shop.app.outbox.list()
    assert (row.key, row.aggregate_id, row.execution_id, row.leased_by) == ("ship:1", "ship:1", handle.id, None)


async def test_rolled_back_it_never_was(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    handles = []

    async def order_and_fail() -> None:
        async with place.transaction() as connection:
            await place.insert(connection, 1)
            handles.append(await shop.app.enqueue(shop.ship, 1, task_id="ship:1", connection=connection))
            raise RuntimeError("undo")

    with pytest.raises(RuntimeError):
        await order_and_fail()
    await shop.relay_all()
    assert await place.sql("select id from orders") == []
    assert await place.statuses() == []
    with pytest.raises(semel.NotCommitted):
        await handles[0].result(timeout="100ms")
    assert await world.count() == 0


async def test_many_in_one_call_and_a_duplicate(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.app.enqueue(shop.ship, 3, task_id="ship:3")
    async with place.transaction() as connection:
        calls = [(shop.ship.call(n), f"ship:{n}") for n in range(10)] + [(shop.ship.call(1), "ship:1")]
        handles = await shop.app.enqueue_many(calls, connection=connection)
    await shop.relay_all()
    assert await place.statuses() == ["processed"] * 11
    assert await world.count() == 10
    assert [await handle.status() for handle in handles] == ["pending"] * 11
    assert [n for n in range(10) if n != 1 and handles[n].duplicate] == [3]
    assert handles[1].id == handles[10].id
    assert handles[1].duplicate is not handles[10].duplicate


async def test_other_input_is_a_conflict_on_the_row_and_for_the_handle(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.app.enqueue(shop.ship, 1, task_id="ship:2")
    handle = await shop.order(2)
    await shop.relay_all()
    (row,) = await shop.app.outbox.list(status="failed")
    assert row.last_error is not None
    assert row.last_error.startswith("KeyConflict")
    assert "1 -> 2" in row.last_error
    assert row.retry_count == 1, "it is not tried again"
    with pytest.raises(semel.KeyConflict, match="1 -> 2"):
        await handle.result(timeout="100ms")


async def test_a_workflow_its_signal_a_message_and_a_cancel(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    async with place.transaction() as connection:
        one = await shop.app.start_workflow(shop.approve, 1, workflow_id="order-1", connection=connection)
        two = await shop.app.start_workflow(shop.approve, 2, workflow_id="order-2", connection=connection)
        await one.signal("answer", "yes", connection=connection)
        assert await two.cancel(connection=connection) == "running"
        await shop.app.entity(shop.points, "ada").send(shop.points.add, 5, connection=connection)
    await shop.relay_all()
    assert await place.statuses() == ["processed"] * 5
    async with world.worker(shop.app):
        assert await one.result(timeout=SOON) == "yes"
        with pytest.raises(semel.ExecutionCancelled):
            await two.result(timeout=SOON)
        assert await shop.app.entity(shop.points, "ada").ask(shop.points.add, 1, timeout=SOON) == 6


async def test_an_event_starts_its_runs(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    ran: list[str] = []

    @shop.app.on_event("invoice.paid")
    @shop.app.task
    async def thank(event: semel.EventEnvelope) -> None:
        ran.append(event.event_id)

    await shop.app.apply()
    event = semel.EventEnvelope(event_id="e-1", source="/shop", type="invoice.paid", data={"cents": 900})
    async with place.transaction() as connection:
        published = await shop.app.publish(event, connection=connection)
        assert (published.state, published.runs) == ("waiting", ())
    await shop.relay_all()
    await place.sql("update outbox_events set status = 'pending'")  # as after a relay that died before its mark
    await place.due_now()
    await shop.relay_all()
    assert await place.statuses() == ["processed"]
    page = await shop.app.events.get("e-1")
    assert page.info.duplicates == 0, "a delivery that is sent again is the same one"
    async with world.worker(shop.app):
        await (await shop.app.get(page.runs[0].execution)).result(timeout=SOON)
    assert ran == ["e-1"]


async def test_a_delay_begins_with_the_call(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    handle = await shop.order(1, delay="1h", priority=7)
    await shop.relay_all()
    found = await handle.describe()
    assert found.priority == 7
    assert found.run_at is not None
    (row,) = await shop.app.outbox.list()
    assert abs((found.run_at - row.created_at).total_seconds() - 3600) < 2


async def test_a_duplicate_cannot_be_raised(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    with pytest.raises(semel.InvalidValue, match="on_duplicate"):
        await shop.order(1, on_duplicate="raise")
    assert await sqlite_place.sql("select id from orders") == []


async def test_a_schedule_is_not_changed_through_an_outbox(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    async with sqlite_place.transaction() as connection:
        with pytest.raises(semel.InvalidValue, match="after your commit"):
            await shop.app.schedules.put("hourly", shop.ship, 1, every="1h", connection=connection)


async def test_a_running_relay_is_woken_or_polls(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    async with shop.app.relay(poll="2s") as (relay,), world.worker(shop.app):
        handle = await shop.order(1)
        assert await handle.result(timeout=SOON) == "shipped 1"
        later = await shop.order(2)
        assert await later.result(timeout=SOON) == "shipped 2"
        assert relay.healthy
        assert (await shop.app.outbox.state()).relays == 1
    assert (await shop.app.outbox.state()).relays == 0
    assert not relay.healthy


async def test_an_idle_relay_is_told_by_postgres(world: World, postgres_place: Place) -> None:
    shop = OutboxShop(world, postgres_place)
    async with shop.app.relay(poll="300s"), world.worker(shop.app):
        await eventually(lambda: postgres_place.sql("select 1 from outbox_relays where idle"))
        assert await (await shop.order(1)).result(timeout=SOON) == "shipped 1"
