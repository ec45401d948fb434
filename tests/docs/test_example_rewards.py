"""An entity counts each message once, also when its worker dies in the middle of one."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

import semel
from tests.docs.played import dies, played
from tests.world import World, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def rewards(world: World) -> Iterator[ModuleType]:
    with played("rewards", world) as module:
        yield module


async def test_a_message_that_comes_twice_counts_once(rewards: ModuleType) -> None:
    ada = rewards.app.entity(rewards.Rewards, "ada")
    async with rewards.app.worker():
        assert [await ada.ask("add-points", 300, dedup_key=key, timeout="60s") for key in ("a", "b", "b")] == [
            300, 600, 600,
        ]  # fmt: skip
        with pytest.raises(semel.ExecutionFailed, match="-5 points"):
            await ada.ask("add-points", -5, timeout="60s")
        assert await ada.query("status") == "600 points, gold"
        await eventually(lambda: rewards.mails == ["ada is gold now"])


async def test_points_lapse_and_who_leaves_begins_anew(world: World, rewards: ModuleType) -> None:
    ada = rewards.app.entity(rewards.Rewards, "ada")
    async with world.worker(rewards.app):
        await ada.ask("add-points", 700, timeout="60s")
        await world.advance("731d")
        await eventually(lambda: lapsed(ada))
        await ada.ask("add-points", 100, timeout="60s")
        await ada.ask("leave", timeout="60s")
        assert await ada.ask("add-points", 5, timeout="60s") == 5


async def lapsed(ada: object) -> bool:
    return bool(await ada.query("status") == "0 points, basic")  # type: ignore[attr-defined]


CRASH = """
async def main():
    ada = example.app.entity(example.Rewards, "ada")
    async with example.app, example.app.worker(lease="300ms"):
        await ada.ask("add-points", 400, dedup_key="a", timeout="60s")
        example.tier_for = lambda points: os._exit(DEAD)
        await ada.send("add-points", 200, dedup_key="b")
        await ada.ask("add-points", 1, timeout="60s")


asyncio.run(main())
"""


async def test_a_crash_in_a_handler_counts_the_message_once(world: World, rewards: ModuleType) -> None:
    dies(world, "rewards", CRASH)
    ada = rewards.app.entity(rewards.Rewards, "ada")
    async with world.worker(rewards.app):
        assert await ada.ask("add-points", 200, dedup_key="b", timeout="60s") == 600
        await eventually(lambda: rewards.mails == ["ada is gold now"])
