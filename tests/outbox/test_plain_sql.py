"""Starts that plain SQL writes: triggers and other languages know nothing of Semel but its table."""

from __future__ import annotations

import json

import pytest

import semel
from semel.transactional.outbox import scripts
from semel.transactional.outbox.database import open_database, tables_sql
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import SOON, World

INSERT = "insert into outbox_events (event_type, payload{more}) values ('{type}', '{payload}'{values})"


async def test_a_plain_insert_starts_a_task(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    payload = json.dumps({"name": "ship", "arguments": {"order": 7}, "options": {"priority": 3, "delay": "0s"}})
    key = "`key`" if place.url.startswith("mysql") else "key"
    await place.sql(INSERT.format(more=f", {key}", type="semel.task", payload=payload, values=", 'ship:7'"))
    await shop.relay_all()
    found = await shop.app.find("ship:7")
    assert found is not None
    assert (await found.describe()).priority == 3
    again = await shop.app.enqueue(shop.ship, 7, task_id="ship:7")
    assert again.duplicate, "the same as a start from Python"
    async with world.worker(shop.app):
        assert await again.result(timeout=SOON) == "shipped 7"


async def test_an_event_from_plain_sql(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    payload = json.dumps({"event_id": "e-1", "source": "/db", "type": "row.added", "data": {"id": 1}})
    await place.sql(INSERT.format(more="", type="semel.event", payload=payload, values=""))
    await shop.relay_all()
    assert (await shop.app.events.get("e-1")).info.type == "row.added"
    assert await place.statuses() == ["processed"]


async def test_the_function_and_a_trigger_of_postgres(world: World, postgres_place: Place) -> None:
    shop = OutboxShop(world, postgres_place)
    for statement in (
        """create function ship_it() returns trigger language plpgsql as $$
        begin
          perform semel_outbox_add('task', 'ship', json_build_object('order', new.id), 'ship:' || new.id);
          return new;
        end $$""",
        "create trigger ship_it after insert on orders for each row execute function ship_it()",
        "insert into orders (id) values (1), (2)",
        """select semel_outbox_add('workflow', 'approve', '{"order": 1}', 'order-1', order_key => 'o')""",
        "select semel_outbox_add('task', 'ship')",
    ):
        await postgres_place.sql(statement)
    for kind in ("'taks'", "'event'", "null"):
        with pytest.raises(Exception, match="task or workflow"):
            await postgres_place.sql(f"select semel_outbox_add({kind}, 'ship')")
    await shop.relay_all()
    assert await postgres_place.statuses() == ["processed"] * 3 + ["pending"], "the last one lacks its argument"
    assert {row.key for row in await shop.app.outbox.list()} == {"ship:1", "ship:2", "order-1", None}
    for key in ("ship:1", "ship:2", "order-1"):
        assert await shop.app.find(key) is not None
    assert await postgres_place.sql("select aggregate_id from outbox_events where order_key = 'o'") == [("order-1",)]


async def test_a_workflow_of_other_workers_wants_a_cluster(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    payload = json.dumps({"name": "Provision", "arguments": [1], "options": {"task_queue": "theirs"}})
    await sqlite_place.sql(INSERT.format(more=", key", type="semel.workflow", payload=payload, values=", 'p-1'"))
    await shop.relay_all()
    (row,) = await shop.app.outbox.list()
    assert "Temporal cluster" in (row.last_error or "")


async def test_the_tables_can_be_removed_again(place: Place) -> None:
    database = open_database(place.url)
    await database.execute(tables_sql(database.dialect, drop=True))
    with pytest.raises(semel.MigrationNeeded, match="outbox init"):
        await database.run(scripts.counts("default"), write=False)
    for _ in range(2):
        await database.execute(tables_sql(database.dialect))
    assert await place.statuses() == []
    await database.close()
