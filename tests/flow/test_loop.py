"""The loop of a workflow: no clock, no threads, and the same order each time."""

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from semel.errors import Forbidden
from semel.flow.loop import FlowLoop, Timer
from semel.flow.timers import Timers


def run(code: Callable[[FlowLoop], Coroutine[Any, Any, Any]], salt: int = 1) -> Any:
    timers: list[Timer] = []
    loop = FlowLoop(salt, timers.append)
    task = loop.create_task(code(loop))
    with loop.inside:
        loop.run()
    while not task.done():
        timers.sort(key=lambda timer: timer.due)
        timer = timers.pop(0)
        loop.now = timer.due
        if not timer.cancelled():
            loop.fire(timer)
            with loop.inside:
                loop.run()
    return task.result()


def test_time_stands_still_until_it_is_moved() -> None:
    async def code(loop: FlowLoop) -> list[float]:
        times = [loop.time()]
        await asyncio.sleep(60)
        times.append(loop.time())
        await asyncio.sleep(0)
        return [*times, loop.time()]

    assert run(code) == [0, 60, 60]


def test_sets_of_tasks_have_the_same_order_each_time() -> None:
    async def code(loop: FlowLoop) -> list[int]:
        async def one(n: int) -> int:
            await asyncio.sleep(n % 3)
            return n

        tasks = {asyncio.create_task(one(n)) for n in range(50)}
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    assert len({tuple(run(code, 7)) for _ in range(5)}) == 1


def test_as_completed_starts_them_in_the_order_given() -> None:
    async def code(loop: FlowLoop) -> list[int]:
        began = []

        async def one(n: int) -> None:
            began.append(n)

        for each in asyncio.as_completed([one(n) for n in range(20)]):
            await each
        return began

    assert run(code) == list(range(20))


async def test_inside_another_loop_each_knows_its_own() -> None:
    outer = asyncio.current_task()

    async def code(loop: FlowLoop) -> list[bool]:
        return [asyncio.get_running_loop() is loop, asyncio.current_task() is not outer]  # type: ignore[comparison-overlap]

    assert run(code) == [True, True]
    assert asyncio.current_task() is outer
    await asyncio.sleep(0)


def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.flow.loop.MOST_CALLBACKS", 1000)

    async def code(loop: FlowLoop) -> None:
        while True:
            await asyncio.sleep(0)
            loop.now += 1

    loop = FlowLoop(1, lambda timer: None)
    loop.create_task(code(loop))
    with pytest.raises(RuntimeError, match="without waiting for anything"), loop.inside:
        loop.run()
    loop.abandon()


@pytest.mark.parametrize(
    "reach",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: loop.call_soon_threadsafe(print),
        lambda loop: loop.create_server(None),
        lambda loop: loop.create_connection(None),
        lambda loop: loop.subprocess_exec(None),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.getaddrinfo("x", 1),
    ],
)
def test_what_reaches_outside_is_refused(reach: Callable[[Any], Any]) -> None:
    with pytest.raises(Forbidden):
        reach(FlowLoop(1, lambda timer: None))


def test_abandoned_code_is_closed_where_it_is_and_does_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    heard = []
    gc.collect()
    caplog.clear()

    async def code(loop: FlowLoop) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            heard.append("cancelled")
        finally:
            heard.append("closed")
            asyncio.create_task(asyncio.sleep(1))  # noqa: RUF006
            await asyncio.sleep(1)
            heard.append("went on")

    loop = FlowLoop(1, lambda timer: None)
    loop.create_task(code(loop))
    with loop.inside:
        loop.run()
    loop.abandon()
    gc.collect()
    assert heard == ["closed"]
    assert caplog.text == ""


def test_leaving_python_stays_in_the_task() -> None:
    async def code(loop: FlowLoop) -> None:
        raise SystemExit(3)

    loop = FlowLoop(1, lambda timer: None)
    task = loop.create_task(code(loop))
    with loop.inside:
        loop.run()
    assert isinstance(task.exception(), SystemExit)


def test_what_gather_gives_has_the_same_order_in_a_set_each_time() -> None:
    async def code(loop: FlowLoop) -> list[int]:
        async def one(n: int) -> int:
            await asyncio.sleep(1)
            return n

        done, _ = await asyncio.wait([asyncio.gather(one(n)) for n in range(40)])
        return [future.result()[0] for future in done]

    assert len({tuple(run(code, 7)) for _ in range(5)}) == 1


def test_as_completed_that_was_imported_first_starts_them_in_order_too() -> None:
    program = """
from asyncio import as_completed
import asyncio
from semel.flow.loop import FlowLoop

async def code():
    began = []
    async def one(n):
        began.append(n)
    for each in as_completed([one(n) for n in range(40)]):
        await each
    return began

loop = FlowLoop(1, lambda timer: None)
with loop.inside:
    task = loop.create_task(code())
    loop.run()
assert task.result() == list(range(40)), task.result()
assert sorted(asyncio.run(code())) == list(range(40))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_as_completed_starts_what_a_generator_gives_in_its_order() -> None:
    async def code(loop: FlowLoop) -> list[int]:
        began = []

        async def one(n: int) -> None:
            began.append(n)

        for each in asyncio.as_completed(one(n) for n in range(20)):
            await each
        return began

    assert run(code) == list(range(20))


def test_asyncio_is_the_hosts_own_unless_workflow_code_runs() -> None:
    """Also while two threads run workflow code, whoever leaves first."""
    before = _asyncio_as_it_is()
    first, second = FlowLoop(1, lambda timer: None), FlowLoop(2, lambda timer: None)
    entered, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with second.inside:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=stay)
    with first.inside:
        during = _asyncio_as_it_is()
        thread.start()
        assert entered.wait(60)
    assert during != before
    assert _asyncio_as_it_is() == during  # the other thread still runs
    leave.set()
    thread.join(60)
    assert _asyncio_as_it_is() == before


def _asyncio_as_it_is() -> list[Any]:
    return [cast(Any, asyncio.as_completed).__code__, cast(Any, asyncio.tasks)._GatheringFuture]


def test_a_thousand_timers_cost_no_more_each_than_ten() -> None:
    def comparisons(count: int) -> float:
        timers, loop = Timers(), FlowLoop(1, lambda timer: None)
        asked = 0

        class Watched(Timer):
            def cancelled(self) -> bool:
                nonlocal asked
                asked += 1
                return super().cancelled()

        for n in range(count):
            timer = Watched(n, print, [], cast(Any, loop), None)
            timer.due, timer.number = n, n
            timers.add(timer)
        for n in range(count):
            first = timers.first()
            assert first is not None
            assert first.due == timers.due == n
            assert timers.take(n) is first
        return asked / count

    assert comparisons(1000) <= 2 * comparisons(10)


def test_timers_that_were_cancelled_are_forgotten_though_they_are_due_last() -> None:
    timers, loop = Timers(), FlowLoop(1, lambda timer: None)
    for n in range(10_000):
        timer = Timer(0, print, [], cast(Any, loop), None)
        timer.due, timer.number = 0 if n == 0 else 1000, n
        timers.add(timer)
        if n:
            timer.cancel()
    assert len(timers._set) < 1000
    assert timers.due == 0
