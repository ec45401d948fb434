"""A `clock=` that raises fails what asked for the time, and nothing hangs: the writer thread outlives it."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import semel
from tests.world import SOON, eventually


class Clock:
    """A clock that can be broken and mended."""

    def __init__(self) -> None:
        self.tell: Callable[[], float] = time.time

    def __call__(self) -> float:
        return self.tell()


def broken() -> float:
    raise RuntimeError("the battery is empty")


@pytest.mark.parametrize("wrong", [broken, lambda: math.nan, lambda: math.inf, lambda: None, lambda: "noon"])
@pytest.mark.parametrize("place", ["file", "memory"])
async def test_a_start_says_what_is_wrong_and_the_next_one_works(
    wrong: Callable[[], float], place: str, tmp_path: Path
) -> None:
    clock = Clock()
    url = f"sqlite:///{tmp_path}/semel.db" if place == "file" else "sqlite:///:memory:"
    app = semel.App(url, config=None, clock=clock, auto_migrate=True)

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    async with asyncio.timeout(SOON), app:
        first = await app.enqueue(double, 1)
        clock.tell = wrong
        with pytest.raises(semel.EngineError, match="clock= of this App failed"):
            await app.enqueue(double, 2)
        many = await asyncio.gather(*(app.enqueue(double, n) for n in range(10)), return_exceptions=True)
        assert [type(one) for one in many] == [semel.EngineError] * 10
        with pytest.raises(semel.EngineError, match="clock= of this App failed"):
            await first.status()
        clock.tell = time.time
        second = await app.enqueue(double, 3)
        async with app.worker():
            assert (await first.result(), await second.result()) == (2, 6)
        assert len(await app.list()) == 2


async def test_a_worker_goes_on_once_the_clock_works_again(tmp_path: Path) -> None:
    clock = Clock()
    app = semel.App(f"sqlite:///{tmp_path}/semel.db", config=None, clock=clock, auto_migrate=True)
    asked: list[int] = []

    def count_and_break() -> float:
        asked.append(1)
        raise RuntimeError("the battery is empty")

    @app.task
    async def break_clock() -> str:
        clock.tell = count_and_break
        return "done"

    async with asyncio.timeout(SOON), app, app.worker():
        handle = await app.enqueue(break_clock)
        await eventually(lambda: asked)  # the result cannot be written
        clock.tell = time.time
        assert await handle.result() == "done"
