"""A listening connection that hears nothing is replaced, once, and nothing is left open."""

import asyncio

import pytest

from tests.world import World, eventually

EARS = "select pid from pg_stat_activity where datname = current_database() and application_name = 'semel ear'"


async def test_it_is_replaced_once_and_hears_again(postgres_world: World) -> None:
    world = postgres_world
    app, other = world.app(), world.app()
    for each in (app, other):

        @each.task
        async def work() -> str:
            return "done"

    async with world.worker(app, lease="10m") as worker:  # its heart would look only after minutes
        (old,) = await world.sql(EARS)
        await worker.store.relisten()
        (new,) = await eventually(lambda: replaced(world, old))
        for _ in range(5):
            await asyncio.sleep(0.02)
            assert await world.sql(EARS) == [new]
        assert await (await other.enqueue(work)).result(timeout="60s") == "done"


async def replaced(world: World, old: tuple[object, ...]) -> list[tuple[object, ...]]:
    ears = await world.sql(EARS)
    return ears if len(ears) == 1 and ears != [old] else []


@pytest.mark.slow
async def test_closing_while_it_is_replaced_leaves_nothing_open(postgres_world: World) -> None:
    world = postgres_world
    for pause in (0, 0.001, 0.002, 0.005, 0.01):
        app = world.app()

        @app.task
        async def work() -> None: ...

        async with world.worker(app) as worker:
            await worker.store.relisten()
            await asyncio.sleep(pause)
        await app.close()
    await eventually(lambda: nobody_listens(world))


async def nobody_listens(world: World) -> bool:
    return await world.sql(EARS) == []
