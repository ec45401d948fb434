"""Tables are made once, by whoever comes first; tables from the future are refused."""

import asyncio

import pytest

import semel
from tests.world import World


async def tables(world: World) -> int:
    return await world.count("semel_migration")


@pytest.mark.journal("about tables; for a cluster see tests/engines/temporal")
async def test_again_changes_nothing(world: World) -> None:
    app = world.app()
    await app.migrate()
    before = await tables(world)
    told: list[str] = []
    assert await app.migrate(told.append) == []
    assert told == []
    assert await tables(world) == before


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_many_at_once_converge(engine: str, new_file: World, request: pytest.FixtureRequest) -> None:
    world = new_file
    if engine == "postgres":
        world = request.getfixturevalue("postgres_world")
        await empty(world)
    await asyncio.gather(*(world.app().migrate() for _ in range(4)))
    numbers = [row[0] for row in await world.sql("select number from semel_migration order by number")]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1
    assert await world.app().list() == []
    await world.close()


@pytest.mark.journal("about tables; for a cluster see tests/engines/temporal")
async def test_tables_from_the_future_are_refused(world: World) -> None:
    await world.app().migrate()
    await world.sql("insert into semel_migration (number, name, applied_at) values (9999, 'future', 0)")
    app = world.app()

    @app.task
    async def work() -> None: ...

    for ask in (app.enqueue(work), app.list(), app.migrate()):
        with pytest.raises(semel.SchemaTooNew, match=r"at migration 9999, .* upgrade Semel"):
            await ask


async def empty(world: World) -> None:
    await world.sql("drop schema public cascade")
    await world.sql("create schema public")


async def test_postgresql_without_tables_says_what_to_do(postgres_world: World) -> None:
    await empty(postgres_world)
    app = postgres_world.app()

    @app.task
    async def work() -> None: ...

    with pytest.raises(semel.MigrationNeeded, match="Run: semel migrate"):
        await app.enqueue(work)
    with pytest.raises(semel.MigrationNeeded, match="auto_migrate=True"):
        async with app.worker():
            raise AssertionError("it started")
    told: list[str] = []
    assert await app.migrate(told.append) == told
    assert told[0].startswith("0001_")
    assert not (await app.enqueue(work)).duplicate


async def test_postgresql_makes_its_tables_if_told_to(postgres_world: World) -> None:
    await empty(postgres_world)
    app = postgres_world.app(auto_migrate=True)

    @app.task
    async def work() -> None: ...

    assert not (await app.enqueue(work)).duplicate


async def test_sqlite_makes_its_tables_by_itself_unless_told_not_to(new_file: World) -> None:
    app = new_file.app(auto_migrate=False)

    @app.task
    async def work() -> None: ...

    with pytest.raises(semel.MigrationNeeded):
        await app.enqueue(work)
    other = new_file.app()
    assert await other.list() == []
    assert not (await app.enqueue(work)).duplicate
