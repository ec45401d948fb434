"""Group commit: who gathers with whom, and how many flushes are under way."""

import asyncio

import pytest

from semel.engines.journal.group_commit import Coalescer


class Flushes:
    """Flushes that end when they are told to."""

    def __init__(self, most: int, at_once: int) -> None:
        self.begun: list[list[int]] = []
        self._ends: list[asyncio.Future[None]] = []
        self.group: Coalescer[int, int] = Coalescer(self._flush, most, at_once=at_once)

    async def _flush(self, items: list[int]) -> list[int | BaseException]:
        self.begun.append(items)
        end = asyncio.get_running_loop().create_future()
        self._ends.append(end)
        await end
        return [ValueError(str(item)) if item < 0 else 10 * item for item in items]

    async def end(self, which: int) -> None:
        self._ends[which].set_result(None)
        await settled()


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_gathers_while_one_is_under_way_goes_out_together() -> None:
    flushes = Flushes(most=3, at_once=1)
    first = flushes.group.add(1)
    await settled()
    rest = [flushes.group.add(n) for n in range(2, 7)]
    await settled()
    assert flushes.begun == [[1]]
    await flushes.end(0)
    assert flushes.begun == [[1], [2, 3, 4]]
    await flushes.end(1)
    await flushes.end(2)
    assert flushes.begun == [[1], [2, 3, 4], [5, 6]]
    assert [await answer for answer in (first, *rest)] == [10, 20, 30, 40, 50, 60]


async def test_a_second_one_begins_early_only_when_it_is_full() -> None:
    flushes = Flushes(most=3, at_once=2)
    answers = [flushes.group.add(1)]
    await settled()
    answers += [flushes.group.add(n) for n in (2, 3)]
    await settled()
    assert flushes.begun == [[1]]
    answers += [flushes.group.add(n) for n in (4, 5, 6, 7)]
    await settled()
    assert flushes.begun == [[1], [2, 3, 4]]  # and no third one, though 5, 6, 7 would fill it
    await flushes.end(1)
    assert flushes.begun[2:] == [[5, 6, 7]]
    await flushes.end(0)
    await flushes.end(2)
    assert [await answer for answer in answers] == [10 * n for n in range(1, 8)]
    await asyncio.wait_for(flushes.group.drained(), 20)


async def test_an_error_goes_to_its_caller_alone() -> None:
    flushes = Flushes(most=3, at_once=2)
    answers = [flushes.group.add(n) for n in (1, -2, 3)]
    await settled()
    await flushes.end(0)
    assert (await answers[0], await answers[2]) == (10, 30)
    with pytest.raises(ValueError, match="-2"):
        await answers[1]


async def test_drained_waits_for_all() -> None:
    flushes = Flushes(most=1, at_once=2)
    answers = [flushes.group.add(n) for n in (1, 2, 3)]
    await settled()
    assert flushes.begun == [[1], [2]]
    drained = asyncio.create_task(flushes.group.drained())
    await flushes.end(1)
    await flushes.end(2)
    assert not drained.done()
    await flushes.end(0)
    await asyncio.wait_for(drained, 60)
    assert all(answer.done() for answer in answers)
