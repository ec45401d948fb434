"""Threads for sync tasks: a job never waits behind another one while there is room."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import copy_context

import pytest

from semel.runtime.threads import Threads


@pytest.fixture(autouse=True)
def _hasty() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@asynccontextmanager
async def pool(most: int) -> AsyncIterator[Threads]:
    threads = Threads(most)
    try:
        yield threads
    finally:
        threads.close()


async def test_a_job_that_waits_for_a_later_one_gets_it() -> None:
    async with pool(2) as threads:
        for _ in range(300):
            came = threading.Event()
            waits = threads.run(copy_context(), lambda came=came: came.wait(60))  # type: ignore[misc]
            await asyncio.sleep(0)
            await threads.run(copy_context(), came.set)
            assert await waits


async def test_no_more_threads_than_allowed() -> None:
    at_once: list[int] = []
    running = 0
    lock, together = threading.Lock(), threading.Barrier(3)

    def job() -> None:
        nonlocal running
        with lock:
            running += 1
            at_once.append(running)
            first = len(at_once) <= 3
        if first:
            together.wait(60)
        else:
            threading.Event().wait(0.001)
        with lock:
            running -= 1

    async with pool(3) as threads:
        await asyncio.gather(*(threads.run(copy_context(), job) for _ in range(60)))
    assert len(at_once) == 60
    assert max(at_once) == 3
