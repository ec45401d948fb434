"""No event twice, none missed, and a cursor that never goes back; with a crash in every step."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from tests.docs.played import dies, played
from tests.world import World, eventually

pytestmark = pytest.mark.slow

ALL = [(f"e{at}", f"body {at}") for at in range(1_750_000_000, 1_750_000_480, 60)]
LAST = 1_750_000_000 + 7 * 60
"""When the last event happened."""


@pytest.fixture
def collection(world: World) -> Iterator[ModuleType]:
    with played("cursor_collection", world) as module:
        yield module


async def stored(world: World) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in await world.sql("select id, body from feed_event order by id")]


async def cursor(world: World) -> int:
    return int((await world.sql("select position from feed_cursor"))[0][0])


async def set_up(collection: ModuleType) -> None:
    """The tables, and a schedule that is triggered by hand."""
    app = collection.app
    await (await app.start_workflow(collection.set_up, workflow_id="set-up")).result("60s")
    await app.schedules.put("collect:s", collection.collect, "s", cron="@yearly", misfire="compress")


async def test_windows_tile_over_an_outage(world: World, collection: ModuleType) -> None:
    """Three events an hour; for three hours nobody is there."""
    app, hour = collection.app, timedelta(hours=1)
    begin = world.now().replace(microsecond=0) + hour
    collection.feed = collection.FakeFeed(begin=int(begin.timestamp()) - 3000, every=1200, count=13)
    async with world.worker(app):
        await set_up(collection)
        await app.schedules.put("hourly", collection.collect, "s", every="1h", start_at=begin, misfire="compress")
        await world.advance(hour)
        await ran(collection, begin)
    await world.advance(3 * hour)
    async with world.worker(app):
        await ran(collection, begin + 3 * hour)
    first, second = reversed(await app.schedules.runs("hourly"))
    assert (second.window_start, second.slots) == (first.scheduled_for, 3)
    assert len(await stored(world)) == 12, "the last one is not due yet"
    assert await cursor(world) == int((begin + 3 * hour).timestamp())


async def ran(collection: ModuleType, slot: datetime) -> None:
    handle: Any = await eventually(lambda: collection.app.find(f"activity-hourly:{slot.isoformat()}"))
    await handle.result("60s")


async def test_two_collectors_at_once_store_everything_once(world: World, collection: ModuleType) -> None:
    app = collection.app
    async with world.worker(app):
        await set_up(collection)
        handles = [await app.schedules.trigger("collect:s", f"{n}") for n in range(5)]
        counts = [await handle.result("60s") for handle in handles]
    assert sum(counts) == 8
    assert (await stored(world), await cursor(world) > LAST) == (ALL, True)


async def test_the_cursor_does_not_go_back(world: World, collection: ModuleType) -> None:
    app = collection.app

    @app.workflow
    async def late(ctx: object, old: int, new: int) -> bool:
        return bool(await ctx.transaction(collection.save_cursor, "s", old, new))  # type: ignore[attr-defined]

    async with world.worker(app):
        await set_up(collection)
        await (await app.schedules.trigger("collect:s")).result("60s")
        assert await (await app.start_workflow(late, 3, 6, workflow_id="late")).result("60s") is False
    assert await cursor(world) > LAST


CRASH = """
original = example.{step}


@functools.wraps(original)
def fatal(tx, *args):
    original(tx, *args)
    os._exit(DEAD)  # done, and not committed


async def main():
    app = example.app
    async with app, app.worker(lease="300ms"):
        await (await app.start_workflow(example.set_up, workflow_id="set-up")).result("60s")
        await app.schedules.put("collect:s", example.collect, "s", cron="@yearly", misfire="compress")
        example.{step} = fatal
        await (await app.schedules.trigger("collect:s", "first")).result("60s")


asyncio.run(main())
"""


@pytest.mark.parametrize("step", ["load_cursor", "ingest", "save_cursor"])
async def test_a_crash_between_any_two_steps_loses_and_repeats_nothing(
    step: str, world: World, collection: ModuleType
) -> None:
    dies(world, "cursor_collection", CRASH.format(step=step))
    assert await stored(world) == (ALL[:4] if step == "save_cursor" else [])
    handle = await collection.app.find("activity-collect:s:manual:first", kind="workflow")
    assert handle is not None
    async with world.worker(collection.app):
        assert await handle.result("60s") == 8
    assert (await stored(world), await cursor(world) > LAST) == (ALL, True)
