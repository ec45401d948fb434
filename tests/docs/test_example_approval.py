"""People answer late, twice, or not at all; and the worker may be away while they do."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import semel
from tests.docs.played import played
from tests.world import World, eventually


@pytest.fixture
def approval(world: World) -> Iterator[ModuleType]:
    with played("approval", world) as module:
        yield module


async def test_an_answer_counts_once_and_strangers_do_not(approval: ModuleType) -> None:
    async with approval.app.worker():
        handle = await approval.submit(approval.Expense("e-1", 4_900, "eve", "dan"))
        assert await approval.answer("e-1", "mallory", True, "c-0") == "thank you"
        assert await approval.answer("e-1", "eve", False, "c-1") == "thank you"
        assert await handle.result("60s") == approval.Outcome(False, "eve")
        assert await approval.answer("e-1", "eve", True, "c-2") == "too late"
        assert await approval.answer("e-9", "eve", True, "c-3") == "no such expense"
    assert approval.mails == [("eve", "please approve e-1")]


async def test_silence_is_reminded_handed_on_and_means_no(world: World, approval: ModuleType) -> None:
    handle = await approval.submit(approval.Expense("e-1", 4_900, "eve", "dan"))
    for number in range(1, 7):  # each day another worker: the one before is gone, with all it had in memory
        async with world.worker(approval.app):
            await eventually(lambda number=number: asked(handle, number))  # type: ignore[misc]
        await world.advance("24h10m")
    async with world.worker(approval.app):
        assert await handle.result("60s") == approval.Outcome(False)
    assert [to for to, _ in approval.mails] == ["eve"] * 3 + ["dan"] * 3


async def asked(handle: semel.Handle[Any], number: int) -> bool:
    """Has it sent so many mails, and does it wait for an answer?"""
    events = [event for event in await handle.history() if event.what == "asked"]
    return sum(event.kind == "task" for event in events) == number and events[-1].kind == "signal"


async def test_an_answer_while_nobody_works_is_kept(world: World, approval: ModuleType) -> None:
    handle = await approval.submit(approval.Expense("e-1", 4_900, "eve", "dan"))
    async with world.worker(approval.app):
        await eventually(lambda: approval.mails)
    assert await approval.answer("e-1", "eve", True, "c-1") == "thank you"
    assert await approval.answer("e-1", "eve", True, "c-1") == "thank you"
    async with world.worker(approval.app):
        assert await handle.result("60s") == approval.Outcome(True, "eve")
