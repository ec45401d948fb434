"""No event twice, none missed, and a cursor that never goes back; with a crash in every step."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.docs.played import dies, played
from tests.world import World

pytestmark = pytest.mark.slow

ALL = [(f"e{n}", f"body {n}") for n in range(1, 9)]


@pytest.fixture
def collection(world: World) -> Iterator[ModuleType]:
    with played("cursor_collection", world) as module:
        yield module


async def stored(world: World) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in await world.sql("select id, body from feed_event order by id")]


async def cursor(world: World) -> int:
    return int((await world.sql("select position from feed_cursor"))[0][0])


async def test_two_collectors_at_once_store_everything_once(world: World, collection: ModuleType) -> None:
    app = collection.app
    async with app.worker():
        await (await app.start_workflow(collection.set_up, workflow_id="set-up")).result("60s")
        handles = [await app.start_workflow(collection.collect, "s", workflow_id=f"collect:{n}") for n in range(5)]
        counts = [await handle.result("60s") for handle in handles]
    assert sum(counts) == 8
    assert (await stored(world), await cursor(world)) == (ALL, 8)


async def test_the_cursor_does_not_go_back(world: World, collection: ModuleType) -> None:
    app = collection.app

    @app.workflow
    async def late(ctx: object, old: int, new: int) -> bool:
        return bool(await ctx.transaction(collection.save_cursor, "s", old, new))  # type: ignore[attr-defined]

    async with app.worker():
        await (await app.start_workflow(collection.set_up, workflow_id="set-up")).result("60s")
        await (await app.start_workflow(collection.collect, "s", workflow_id="collect")).result("60s")
        assert await (await app.start_workflow(late, 3, 6, workflow_id="late")).result("60s") is False
    assert await cursor(world) == 8


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
        example.{step} = fatal
        await (await app.start_workflow(example.collect, "s", workflow_id="collect")).result("60s")


asyncio.run(main())
"""


@pytest.mark.parametrize("step", ["load_cursor", "ingest", "save_cursor"])
async def test_a_crash_between_any_two_steps_loses_and_repeats_nothing(
    step: str, world: World, collection: ModuleType
) -> None:
    dies(world, "cursor_collection", CRASH.format(step=step))
    assert await stored(world) == (ALL[:3] if step == "save_cursor" else [])
    handle = await collection.app.find("collect", kind="workflow")
    assert handle is not None
    async with collection.app.worker():
        assert await handle.result("60s") == 8
    assert (await stored(world), await cursor(world)) == (ALL, 8)
