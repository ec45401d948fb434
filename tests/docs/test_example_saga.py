"""What is undone is undone in reverse, whatever went wrong, and also when the worker dies on the way."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import semel
from tests.docs.played import dies, played
from tests.world import World, ended, eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def saga(world: World) -> Iterator[ModuleType]:
    with played("order_saga", world) as module:
        yield module


async def test_a_good_order_is_shipped(saga: ModuleType) -> None:
    async with saga.app.worker():
        handle = await saga.place(saga.Order("o-1", 9_900, grace=0.0))
        assert await handle.result("60s") == "ship o-1"
    assert list(saga.partners.done.values()) == ["reserve o-1", "charge o-1", "ship o-1"]


async def test_a_step_that_fails_undoes_the_others_in_reverse(saga: ModuleType) -> None:
    async with saga.app.worker():
        handle = await saga.place(saga.Order("o-2", 9_900, grace=0.0))
        with pytest.raises(semel.ExecutionFailed, match="cannot ship o-2"):
            await handle.result("60s")
        assert (await saga.place(saga.Order("o-2", 9_900, grace=0.0))).id == handle.id
    assert list(saga.partners.done.values()) == ["reserve o-2", "charge o-2", "refund o-2", "release o-2"]


async def test_a_cancelled_order_is_undone_in_reverse(saga: ModuleType) -> None:
    async with saga.app.worker():
        handle = await saga.place(saga.Order("o-3", 9_900))
        await eventually(lambda: paid(handle))
    async with saga.app.worker():  # another worker than the one that charged
        await handle.cancel()
        assert await ended(handle) == "cancelled"
    assert list(saga.partners.done.values()) == ["reserve o-3", "charge o-3", "refund o-3", "release o-3"]
    assert await handle.published("state") == "undone"


async def paid(handle: semel.Handle[Any]) -> bool:
    return bool(await handle.published("state") == "paid")


CRASH = """
async def do(what, key):
    if what == "refund o-1":
        os._exit(DEAD)
    if what == "ship o-1":
        raise ValueError("no road")
    return what


async def main():
    example.partners.do = do
    async with example.app, example.app.worker(lease="300ms"):
        await (await example.place(example.Order("o-1", 9_900, grace=0.0))).result("60s")


asyncio.run(main())
"""


async def test_a_crash_in_the_middle_of_undoing_is_survived(world: World, saga: ModuleType) -> None:
    dies(world, "order_saga", CRASH)
    handle = await saga.app.find("order:o-1", kind="workflow")
    assert handle is not None
    async with saga.app.worker():
        assert await ended(handle) == "failed"
    assert list(saga.partners.done.values()) == ["refund o-1", "release o-1"]
    assert await handle.published("state") == "undone"
