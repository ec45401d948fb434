"""Real `semel worker` processes on Temporal: SIGKILL, a task that takes its process along, SIGTERM once and twice."""

from __future__ import annotations

import asyncio
import signal

import pytest

import semel
from tests.faults.temporal.place import Place, worker
from tests.world import eventually

pytestmark = pytest.mark.slow
KILLS = 2
LEASE = ("--lease", "1s", "--log-level", "warning")


async def effects(place: Place, count: int) -> None:
    await eventually(lambda: len(place.ledger.effects()) >= count, within=100)


async def test_what_a_killed_worker_ran_runs_again_after_its_lease(place: Place) -> None:
    kitchen = place.kitchen()
    async with kitchen.app as app:
        with worker(place, "--lease", "4s") as first:  # less would be lost on a busy machine without anybody's death
            handle = await app.enqueue(kitchen.cook, "o-1", 60.0, task_id="k-1")
            flow = await app.start_workflow(kitchen.meal, "o-2", 60.0, workflow_id="w-1")
            await effects(place, 3)  # the task; the step and the task of the workflow
            with worker(place, "--lease", "4s") as second:
                await second.ready()
                first.kill()
                await effects(place, 5)
                assert await handle.result(timeout="100s") == "o-1"
                await flow.signal("served", "yes")
                ended = ["o-2 ordered", "o-2", "o-2", "o-2", "yes", "o-2 paid"]
                assert await flow.result(timeout="100s") == ended
                second.child.send_signal(signal.SIGTERM)
                assert await second.ended() == 0
    assert sorted(one.attempt for one in place.ledger.effects() if one.execution == handle.id) == [1, 2]
    times = place.ledger.times()
    twice = sorted(key for key, count in times.items() if count > 1)
    assert sorted(times.values()) == [1, 1, 1, 1, 2, 2], times
    assert [key for key in twice if ":k-1:" in key or "cook" in key] == twice, times  # a recorded step ran once


async def test_a_task_that_ends_its_process_is_dead_after_its_attempts_and_harms_nobody(place: Place) -> None:
    """fault 7"""
    kitchen = place.kitchen()
    async with kitchen.app as app:
        poison = await app.enqueue(kitchen.poison, task_id="bad")
        for attempt in (1, 2):
            with worker(place, *LEASE) as process:
                await effects(place, attempt)
                assert await process.ended() == 13
        with worker(place, *LEASE) as process:
            assert await (await app.enqueue(kitchen.chop, "o")).result(timeout="100s") == "o"
            with pytest.raises(semel.ExecutionFailed, match="the worker died or went silent while running this task"):
                await poison.result(timeout="100s")
            told = f"task poison 'bad' failed (execution {poison.id}, attempt 2): semel.WorkerLost: "
            await eventually(lambda: told in process.said())
    assert [one.attempt for one in place.ledger.effects() if one.execution == poison.id] == [1, 2]


async def test_an_entity_keeps_its_state_and_its_messages_whatever_one_of_them_does(place: Place) -> None:
    """fault 7: on a cluster the message is tried until it works, and those behind it wait."""
    kitchen = place.kitchen()
    async with kitchen.app as app:
        till = app.entity(kitchen.Till, "t")
        for key, name, *args in (("a", "add", 5), ("b", "slam"), ("c", "add", 7)):
            await till.send(name, *args, dedup_key=key)
        for attempt in (1, 2):
            with worker(place, *LEASE) as process:
                await effects(place, attempt)
                assert await process.ended() == 13
        with worker(place, *LEASE):
            assert await till.ask("add", 7, dedup_key="c", timeout="100s") == 1012
            assert await till.ask("slam", dedup_key="b", timeout="100s") == 1005


async def test_a_workflow_goes_on_in_another_worker_wherever_the_first_was(place: Place) -> None:
    """Killed at moments that come by chance, from its first step to its end; recorded steps do not run again."""
    kitchen = place.kitchen()
    async with kitchen.app as app:
        handles = [await app.start_workflow(kitchen.meal, f"o-{n}", 0.1, workflow_id=f"w-{n}") for n in range(5)]
        for handle in handles:
            await handle.signal("served", "yes", dedup_key="once")
        for number in range(KILLS):
            before = len(place.ledger.effects())
            with worker(place, *LEASE) as process:
                await effects(place, before + 2 + number)
                process.kill()
        with worker(place, *LEASE):
            got = await asyncio.gather(*(handle.result(timeout="100s") for handle in handles))
    assert got == [[f"o-{n} ordered", f"o-{n}", f"o-{n}", f"o-{n}", "yes", f"o-{n} paid"] for n in range(5)]
    times = place.ledger.times()
    assert len(times) == 5 * 5  # two steps, two tasks, the task of the child
    assert max(times.values()) <= 1 + KILLS, times


@pytest.mark.parametrize("terms", [1, 2])
async def test_sigterm_lets_tasks_finish_and_a_second_one_gives_them_back(place: Place, terms: int) -> None:
    kitchen = place.kitchen()
    async with kitchen.app as app:
        with worker(place, "--lease", "5s", "--grace", "100s") as process:
            await process.ready()
            handle = await app.enqueue(kitchen.cook, "o-1", 3.0 if terms == 1 else 60.0, task_id="k-1")
            await effects(place, 1)
            process.child.send_signal(signal.SIGTERM)
            if terms == 2:
                await eventually(lambda: "waiting for" in process.said())
                process.child.send_signal(signal.SIGTERM)
            assert await process.ended() == 0, process.said()
        if terms == 1:
            assert await handle.result(timeout="0s") == "o-1"
        else:
            assert await handle.status() is semel.Status.PENDING
            with worker(place, "--lease", "5s"):
                assert await handle.result(timeout="100s") == "o-1"
    assert [one.attempt for one in place.ledger.effects()] == [1] * terms  # nothing is held against the task
