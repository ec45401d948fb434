"""What a worker does now and then: whenever it is due, whatever becomes of the others, and never twice at a time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from semel.errors import EngineUnavailable
from semel.runtime.chores import Chore, Chores
from semel.runtime.outage import Outage
from tests.world import eventually


@asynccontextmanager
async def doing(*chores: Chore, outage: Outage | None = None) -> AsyncIterator[Chores]:
    one = Chores("w1", outage or Outage("database", "w1"))
    for chore in chores:
        one.add(chore)
    one.start()
    try:
        yield one
    finally:
        await one.close()


def counting(answer: Callable[[int], float | None]) -> tuple[list[float], Callable[[], Awaitable[float | None]]]:
    times: list[float] = []

    async def run() -> float | None:
        times.append(time.monotonic())
        return answer(len(times))

    return times, run


async def test_it_is_done_again_after_the_time_it_asked_for() -> None:
    times, run = counting(lambda n: 0.02 if n < 3 else None)
    async with doing(Chore("tick", run)) as chores:
        await eventually(lambda: len(times) == 3)
        await eventually(lambda: chores["tick"].next_due == math.inf)
        assert chores.alive
        assert all(later - sooner >= 0.02 for sooner, later in itertools.pairwise(times))
        chores["tick"].due_in(0)
        await eventually(lambda: len(times) == 4)
    assert not chores.alive


async def test_who_asks_for_it_earlier_gets_it_earlier_and_a_later_time_changes_nothing() -> None:
    times, run = counting(lambda n: 3600)
    async with doing(Chore("tick", run, first=3600)) as chores:
        chores["tick"].due_in(7200)
        chores["tick"].due_in(0)
        await eventually(lambda: times)
        assert len(times) == 1


async def test_what_comes_up_while_it_is_being_done_is_done_after_it() -> None:
    inside, times = asyncio.Event(), 0

    async def run() -> None:
        nonlocal times
        times += 1
        assert not inside.is_set(), "twice at the same time"
        inside.set()
        await asyncio.sleep(0.02)
        inside.clear()

    async with doing(Chore("tick", run)) as chores:
        await inside.wait()
        chores["tick"].due_in(0)
        await eventually(lambda: times == 2)


async def test_one_that_hangs_or_fails_keeps_no_other_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "semel")

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ValueError("no")

    times, run = counting(lambda n: 0.01)
    async with doing(Chore("hangs", hang), Chore("fails", fail), Chore("tick", run)) as chores:
        await eventually(lambda: len(times) > 3)
        assert chores.alive
    assert caplog.messages[0] == "fails of w1 failed; it is tried again"


async def test_a_failure_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "semel")
    tries = 0

    async def run() -> float:
        nonlocal tries
        tries += 1
        if tries in (1, 2, 4):
            raise EngineUnavailable("no answer.")
        return 0.0 if tries == 3 else 3600

    async with doing(Chore("tick", run)):
        await eventually(lambda: tries == 5)
    assert caplog.messages == ["tick of w1, to be tried again: no answer"] * 2  # once for each time it began to fail


async def test_of_an_outage_that_is_known_it_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "semel")
    outage, tries = Outage("database", "w1"), 0
    outage.lost("heart", EngineUnavailable("no answer."))
    caplog.clear()

    async def run() -> None:
        nonlocal tries
        tries += 1
        raise EngineUnavailable("no answer.")

    async with doing(Chore("tick", run), outage=outage):
        await eventually(lambda: tries == 2)
    assert caplog.messages == []


async def test_one_that_is_added_later_begins_at_once_and_a_name_stands_for_one() -> None:
    times, run = counting(lambda n: None)
    async with doing() as chores:
        chores.add(Chore("tick", run))
        await eventually(lambda: times)
        with pytest.raises(ValueError, match="tick"):
            chores.add(Chore("tick", run))
