"""A key counts once within the window, through restarts and without a cache; no key counts each time."""

import asyncio
import logging

import pytest

import semel
from semel.contract.decision import Reason
from tests.world import World

pytestmark = pytest.mark.slow


class Points:
    total: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, n: int = 1) -> int:
        self.total += n
        return self.total

    @semel.handler
    async def add_after_a_nap(self, ctx: semel.EntityContext, n: int = 1) -> int:
        await ctx.sleep("10m")
        self.total += n
        return self.total


async def test_five_equal_keys_count_once_and_no_key_each_time(world: World) -> None:
    app = world.app()
    app.entity(Points)
    points = app.entity(Points, "p")
    async with world.worker(app):
        for _ in range(5):
            await points.send("add", dedup_key="k")
        await asyncio.gather(*(points.send("add", dedup_key="other") for _ in range(5)))
        assert await points.ask("add", 0, timeout="60s") == 2
        for _ in range(5):
            await points.send("add")
        assert await points.ask("add", 0, timeout="60s") == 7
    explained = await app.explain(points.key, kind="entity")
    assert {s.reason: s.count for s in explained.suppressed} == {Reason.SEEN: 8}
    assert "8 duplicates did not run (its key had been seen within the window)" in str(explained)


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_key_is_known_after_a_restart(world: World, cached: int) -> None:
    for n in range(3):
        app = world.app()
        app.entity(Points)
        points = app.entity(Points, "p")
        async with world.worker(app, cached_workflows=cached):
            for _ in range(3):
                await points.ask("add", dedup_key="k", timeout="60s")
                await points.ask("add", 10, dedup_key=f"k{n}", timeout="60s")
            assert (await points.state()).total == 1 + 10 * (n + 1)


async def test_the_window_is_over_at_its_end_and_a_duplicate_does_not_prolong_it(world: World) -> None:
    app = world.app()
    app.entity(window="1h")(Points)
    points = app.entity(Points, "p")
    async with world.worker(app):
        assert await points.ask("add", dedup_key="k", timeout="60s") == 1
        await world.advance("30m")
        assert await points.ask("add", dedup_key="k", timeout="60s") == 1
        await world.advance("29m")
        assert await points.ask("add", dedup_key="k", timeout="60s") == 1
        await world.advance("2m")
        assert await points.ask("add", dedup_key="k", timeout="60s") == 2
        assert await points.ask("add", dedup_key="k", timeout="60s") == 2


async def test_exactly_at_the_end_of_the_window_it_is_a_duplicate(sqlite_world: World) -> None:
    time = [1_800_000_000.0]
    app = semel.App(sqlite_world.url, config=None, clock=lambda: time[0])
    app.entity(window="1h")(Points)
    points = app.entity(Points, "p")
    async with app, app.worker():
        for moved, total in ((0, 1), (3600, 1), (1e-6, 2), (3600, 2), (1e-6, 3)):
            time[0] += moved
            assert await points.ask("add", dedup_key="k", timeout="60s") == total


async def test_the_window_is_between_the_sends_also_if_nobody_was_there_to_handle_them(world: World) -> None:
    app = world.app()
    app.entity(window="1h")(Points)
    points = app.entity(Points, "p")
    async with world.worker(app):
        await points.ask("add", dedup_key="k", timeout="60s")
    await world.advance("59m")
    await points.send("add", dedup_key="k")
    await world.advance("5h")
    async with world.worker(app):
        assert await points.ask("add", 0, timeout="60s") == 1


@pytest.mark.parametrize("cached", [0, 100])
async def test_an_answer_from_before_the_window_is_not_the_answer(world: World, cached: int) -> None:
    app = world.app()
    app.entity(window="30s")(Points)
    points = app.entity(Points, "p")
    async with world.worker(app, cached_workflows=cached):
        await points.ask("add", dedup_key="k", timeout="60s")
        await world.advance("31s")
        assert await world.advance_until(points.ask("add-after-a-nap", dedup_key="k", timeout="60s"), "10m") == 2


@pytest.mark.parametrize("cached", [0, 100])
async def test_more_than_max_keys_forget_the_oldest_and_say_so(
    world: World, caplog: pytest.LogCaptureFixture, cached: int
) -> None:
    app = world.app()
    app.entity(max_keys=3)(Points)
    points = app.entity(Points, "p")
    async with world.worker(app, cached_workflows=cached):
        with caplog.at_level(logging.WARNING, "semel.entity"):
            asked = [points.ask("add", dedup_key=f"k{n}", timeout="60s") for n in range(5)]
            assert sorted(await asyncio.gather(*asked)) == [1, 2, 3, 4, 5]  # also those that had to make room
        assert "more than max_keys=3 message keys within its window" in caplog.text
        for n in (4, 3, 2):
            assert await points.ask("add", dedup_key=f"k{n}", timeout="60s") == n + 1
        assert await points.ask("add", dedup_key="k0", timeout="60s") == 6
        explained = await app.explain(points.key, kind="entity")
        assert {s.reason: s.count for s in explained.suppressed} == {Reason.SEEN: 3, Reason.OVERFLOWED: 3}
        assert "3 message keys were forgotten before the window was over" in str(explained)
        await world.advance("5m")
        await points.ask("add", dedup_key="k9", timeout="60s")
        assert await world.kept_keys() <= 4


async def test_questions_without_a_key_take_no_room_from_keys(world: World) -> None:
    app = world.app()
    app.entity(max_keys=3)(Points)
    points = app.entity(Points, "p")
    async with world.worker(app):
        await points.ask("add", dedup_key="k", timeout="60s")
        for _ in range(5):
            await points.ask("add", timeout="60s")
        assert await points.ask("add", dedup_key="k", timeout="60s") == 1
        await world.advance("2h")
        await points.ask("add", 0, timeout="60s")
        await points.ask("add", 0, timeout="60s")
        assert await world.kept_keys() <= 3


@pytest.mark.parametrize("cached", [0, 100])
async def test_keys_of_messages_that_were_handled_beside_one_that_waits(world: World, cached: int) -> None:
    """A journal that is replayed does not count their keys again, else older keys would be forgotten."""
    app = world.app()
    app.entity(Points)
    points = app.entity(Points, "p")
    async with world.worker(app, cached_workflows=cached):
        await points.ask("add", dedup_key="oldest", timeout="60s")
        await asyncio.gather(
            points.send("add-after-a-nap", dedup_key="nap"),
            *(points.send("add", dedup_key=f"k{n}") for n in range(70)),
            points.send("add-after-a-nap", dedup_key="nap2"),
        )
    async with world.worker(app, cached_workflows=cached):
        await world.advance("11m")
    async with world.worker(app, cached_workflows=cached):
        assert await world.advance_until(points.ask("add", 0, timeout="60s"), "11m") == 73
    async with world.worker(app, cached_workflows=cached):
        for key in ("oldest", "nap", "k0", "k69", "nap2"):
            await points.send("add", 100, dedup_key=key)
        assert await points.ask("add", 0, timeout="60s") == 73
