"""`explain` looks into the outbox of the settings for a key that the engine does not know."""

from __future__ import annotations

from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.outbox.test_redrive_processed import restore
from tests.world import World


async def explained(shop: OutboxShop, key: str, kind: str | None = None) -> str:
    return str(await shop.app.explain(key, kind=kind))


async def test_a_row_that_waits_has_failed_or_was_relayed_before_a_restore(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.order(1)
    with shop.app.outbox_options(aggregate_id="order-2"):
        await shop.order(2)
    for key in ("ship:1", "ship:2"):
        told = await explained(shop, key)
        assert "of the outbox asks for it and waits since 20" in told
        assert "semel doctor" in told
        assert "never ran" not in told
        assert await explained(shop, key, "workflow") == told
        assert "outbox" not in await explained(shop, key, "entity")
    assert "outbox" not in await explained(shop, "ship:3")
    assert "outbox" not in await explained(shop, "order-2"), "it is no key"

    await place.sql("update outbox_events set retry_count = 3, last_error = 'no answer' where aggregate_id = 'order-2'")
    assert "retries: 3. The last error: no answer" in await explained(shop, "ship:2")
    await place.sql("update outbox_events set status = 'failed' where aggregate_id = 'order-2'")
    told = await explained(shop, "ship:2")
    assert "has failed after 3 tries. The last error: no answer" in told
    (failed,) = await shop.app.outbox.list(status="failed")
    assert f"semel outbox redrive {failed.id}" in told

    await shop.relay_all()
    assert "outbox" not in await explained(shop, "ship:1"), "the engine knows it"
    await restore(world)
    assert "--processed-since" in await explained(shop, "ship:1")


async def test_rows_of_another_namespace_are_not_told(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    await shop.order(1)
    await place.sql("update outbox_events set namespace = 'other'")
    assert "outbox" not in await explained(shop, "ship:1")


async def test_an_outbox_that_cannot_be_asked_is_no_obstacle(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    await sqlite_place.sql("drop table outbox_events")
    told = await explained(shop, "ship:1")
    assert "No execution is known" in told
    assert "The outbox could not be asked" in told
