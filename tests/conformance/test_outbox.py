"""A start that is committed in another database reaches every engine once, whatever a relay does in between."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

import semel
from tests.outbox.places import SqlitePlace
from tests.outbox.shop import OutboxShop
from tests.world import SOON, World


async def new_shop(world: World, folder: Path) -> OutboxShop:
    place = SqlitePlace(f"sqlite:///{folder}/shop.db")
    await place.prepare()
    return OutboxShop(world, place)


async def again(shop: OutboxShop) -> None:
    """A relay has died before its mark: the next one carries out the same rows once more."""
    await shop.place.sql("update outbox_events set status = 'pending'")
    await shop.place.due_now()
    await shop.relay_all()


async def refused(work: Awaitable[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        await work


async def test_it_is_started_once(world: World, tmp_path: Path) -> None:
    shop = await new_shop(world, tmp_path)
    handle = await shop.order(1)
    async with shop.place.transaction() as connection:
        free = await shop.app.enqueue(shop.ship, 2, connection=connection)
    for early in (handle, free):
        await refused(early.result(), semel.NotCommitted)
        await refused(early.describe(), semel.NotCommitted)
    await shop.relay_all()
    async with world.worker(shop.app):
        assert await handle.result(timeout=SOON) == "shipped 1"
        assert await free.result(timeout=SOON) == "shipped 2"
        await again(shop)
        assert await handle.result(timeout=SOON) == "shipped 1"
    assert await world.count() == 2
    assert (handle.duplicate, free.duplicate) == (False, False)
    assert await shop.place.statuses() == ["processed", "processed"]


async def test_a_duplicate_shares_and_other_input_is_refused(world: World, tmp_path: Path) -> None:
    shop = await new_shop(world, tmp_path)
    first = await shop.app.enqueue(shop.ship, 1, task_id="ship:1")
    same = await shop.order(1)
    async with shop.place.transaction() as connection:
        other = await shop.app.enqueue(shop.ship, 9, task_id="ship:1", connection=connection)
    await shop.relay_all()
    assert (await same.describe()).id == first.id
    assert same.duplicate
    await refused(other.result(timeout="100ms"), semel.KeyConflict)
    assert await shop.place.statuses() == ["processed", "failed"]
    assert await world.count() == 1


async def test_what_is_sent_again_after_its_key_has_moved_on_is_known(world: World, tmp_path: Path) -> None:
    shop = await new_shop(world, tmp_path)
    handle = await shop.order(1)
    await shop.relay_all()
    async with world.worker(shop.app):
        await handle.result(timeout=SOON)
        follower = await shop.app.enqueue(shop.ship, 1, task_id="ship:1", reuse="always")
        await follower.result(timeout=SOON)
        await again(shop)
    assert await world.count() == 2
    (row,) = await shop.app.outbox.list()
    assert row.execution_id == handle.id


async def test_workflow_signal_message_and_cancel(world: World, tmp_path: Path) -> None:
    shop = await new_shop(world, tmp_path)
    points = shop.app.entity(shop.points, "ada")
    async with shop.place.transaction() as connection:
        one = await shop.app.start_workflow(shop.approve, 1, workflow_id="order-1", connection=connection)
        two = await shop.app.start_workflow(shop.approve, 2, workflow_id="order-2", connection=connection)
        await one.signal("answer", "yes", connection=connection)
        await two.cancel(connection=connection)
        await points.send(shop.points.add, 5, connection=connection)
    async with world.worker(shop.app):
        await shop.relay_all()
        assert await one.result(timeout=SOON) == "yes"
        await refused(two.result(timeout=SOON), semel.ExecutionCancelled)
        await shop.place.sql("update outbox_events set status = 'pending' where event_type = 'semel.send'")
        await shop.place.due_now()
        await shop.relay_all()
        assert await points.ask(shop.points.add, 1, timeout=SOON) == 6, "a message that is sent again counts once"
    assert await shop.place.statuses() == ["processed"] * 5


async def test_an_event(world: World, tmp_path: Path) -> None:
    shop = await new_shop(world, tmp_path)

    @shop.app.on_event("invoice.paid")
    @shop.app.task
    async def thank() -> str:
        return "thanks"

    await shop.app.apply()
    event = semel.EventEnvelope(event_id="e-1", source="/shop", type="invoice.paid", data={})
    async with shop.place.transaction() as connection:
        await shop.app.publish(event, connection=connection)
    await shop.relay_all()
    await again(shop)
    assert (await shop.app.events.get("e-1")).info.duplicates == 0
    async with world.worker(shop.app):
        handle = await shop.app.find("activity-thank:e-1")
        assert handle is not None
        assert await handle.result(timeout=SOON) == "thanks"
