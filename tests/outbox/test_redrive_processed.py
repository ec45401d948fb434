"""An engine whose database was restored from a backup: rows that were relayed since then are relayed again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import semel
from semel.transactional.outbox import scripts
from tests.outbox.places import Place
from tests.outbox.shop import OutboxShop
from tests.world import World

BACKUP = datetime(2026, 3, 1, 9, tzinfo=UTC)
OLD = "update outbox_events set processed_at = '{at}' where status = 'processed' and {which}"


async def restore(world: World) -> None:
    """As if the engine were as it was before anything came to it."""
    for table in ("ready", "later", "slip", "duplicate", "execution"):
        await world.sql(f"delete from semel_{table}")


async def test_rows_processed_since_the_backup_are_relayed_again(
    world: World, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "MOST_REDRIVEN", 2)
    await relay_again_after_a_restore(world, place)


async def relay_again_after_a_restore(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    for number in range(6):
        await shop.order(number)
    await shop.relay_all()
    await place.sql(OLD.format(at="2026-03-01 08:59:59.999", which="aggregate_id = 'ship:0'"))
    await place.sql(OLD.format(at="2026-03-01 09:00:00.000", which="aggregate_id = 'ship:1'"))
    await place.sql("update outbox_events set namespace = 'other' where aggregate_id = 'ship:5'")
    with shop.app.outbox_options(max_retries=1):
        await shop.mail("bad")
    await shop.relay_all()
    before = {row.id: row for row in await shop.app.outbox.list()}
    await restore(world)

    assert await shop.app.outbox.redrive_processed(BACKUP) == 4
    after = await shop.app.outbox.list(status="pending")
    assert sorted(row.key or "" for row in after) == [f"ship:{number}" for number in range(1, 5)]
    assert {(row.retry_count, row.processed_at, row.execution_id) for row in after} == {(0, None, None)}
    assert await place.sql("select status from outbox_events where namespace = 'other'") == [("processed",)]
    await shop.relay_all()
    assert await world.count() == 4
    assert [row.status for row in await shop.app.outbox.list()] == ["failed", *["processed"] * 5]
    for row in await shop.app.outbox.list(status="processed"):
        assert row.execution_id == before[row.id].execution_id, "each has the id of its request"


async def test_what_the_engine_still_has_is_not_started_again(world: World, place: Place) -> None:
    shop = OutboxShop(world, place)
    for number in range(3):
        await shop.order(number)
    async with place.transaction() as connection:
        await shop.app.enqueue(shop.ship, 9, connection=connection)
    await shop.relay_all()
    assert await world.count() == 4
    assert await shop.app.outbox.redrive_processed(datetime.now(UTC) + timedelta(days=1)) == 0
    assert await shop.app.outbox.redrive_processed(BACKUP) == 4
    await shop.relay_all()
    assert await world.count() == 4
    assert await place.statuses() == ["processed"] * 4


async def test_a_relay_beside_it_is_not_a_loop(
    world: World, sqlite_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is processed again while it goes on is not taken a second time."""
    monkeypatch.setattr(scripts, "MOST_REDRIVEN", 1)
    shop = OutboxShop(world, sqlite_place)
    for number in range(3):
        await shop.order(number)
    await shop.relay_all()
    played = scripts.redrive_processed

    def mark_at_once(*given: object) -> object:
        found = yield from played(*given)  # type: ignore[arg-type, misc]
        yield scripts.One("mark_all")
        return found

    monkeypatch.setattr(scripts, "redrive_processed", mark_at_once)
    database = shop.app.outbox._database(None)
    database._statements._queries["mark_all"] = (  # type: ignore[attr-defined]
        "update outbox_events set status = 'processed', processed_at = '2999-01-01 00:00:00.000'"
    )
    monkeypatch.setattr(shop.app.outbox, "_database", lambda url: database)
    assert await shop.app.outbox.redrive_processed(BACKUP) == 3


async def test_a_time_without_a_timezone_is_refused(world: World, sqlite_place: Place) -> None:
    shop = OutboxShop(world, sqlite_place)
    with pytest.raises(semel.InvalidValue, match="has no timezone"):
        await shop.app.outbox.redrive_processed(datetime(2026, 3, 1))  # noqa: DTZ001
