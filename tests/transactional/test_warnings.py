"""What is bound and what is not: warnings for starts outside of an open transaction, and tasks that outlive a block."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import aiosqlite
import pytest

import semel
from tests.conftest import new_world
from tests.transactional.django_site import connection_to
from tests.transactional.test_commit_and_start import shop
from tests.world import World


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return new_world("sqlite", tmp_path, request)


async def test_inside_atomic_without_a_connection_warns_once_for_each_place(world: World, tmp_path: Path) -> None:
    app, ship = shop(world)
    await app.migrate()

    def work() -> list[warnings.WarningMessage]:
        connection, atomic = connection_to(f"sqlite:///{tmp_path}/django.db")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            with atomic(using=connection.alias):
                for number in range(3):
                    app.sync.enqueue(ship, number)
                with app.bind(None):
                    app.sync.enqueue(ship, 3)
            app.sync.enqueue(ship, 4)
        connection.close()
        return caught

    (told,) = await asyncio.to_thread(work)
    assert told.category is semel.OutsideTransaction
    assert "connection=connections['test" in str(told.message)
    assert told.filename == __file__
    assert await world.count() == 5
    app.sync.close()


async def test_a_connection_that_is_bound_to_another_app_warns(world: World) -> None:
    app, ship = shop(world)
    other, _ = shop(world)
    await app.migrate()
    with other.bind(object()), pytest.warns(semel.OutsideTransaction, match="another app") as caught:
        await app.enqueue(ship, 1)
    assert caught[0].filename == __file__
    assert await world.count() == 1


async def test_a_task_that_outlives_the_block_is_not_bound_any_more(world: World) -> None:
    """It would start work on a connection whose transaction has ended, and nobody would commit it."""
    app, ship = shop(world)
    await app.migrate()
    left = asyncio.Event()

    async def later() -> None:
        await left.wait()
        await app.enqueue(ship, 2, task_id="later")

    async with aiosqlite.connect(world.url.removeprefix("sqlite:///")) as connection:
        with app.bind(connection):
            background = asyncio.create_task(later())
            await app.enqueue(ship, 1, task_id="now")
        await connection.rollback()
        left.set()
        await background
    assert [one.key for one in await app.list()] == ["later"]
