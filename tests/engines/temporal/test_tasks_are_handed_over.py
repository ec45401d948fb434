"""A task of a workflow is run by the worker that has the workflow, without a way through its queue; limits hold."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import semel
from semel.engines.temporal.pollers import Slots
from tests.conftest import new_world
from tests.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return new_world("temporal", tmp_path, request)


async def test_no_more_run_at_once_than_the_worker_may(cluster: World) -> None:
    app = cluster.app()
    running: list[int] = []
    most: list[int] = []

    @app.task
    async def work(n: int) -> int:
        running.append(n)
        most.append(len(running))
        await asyncio.sleep(0.05)
        running.remove(n)
        return n

    @app.workflow
    async def fan(ctx: semel.Context) -> list[int]:
        return list(await asyncio.gather(*(ctx.execute_task(work, n) for n in range(24))))

    async with cluster.worker(app, concurrency=8):
        assert await (await app.start_workflow(fan, workflow_id="fan")).result(timeout="30s") == list(range(24))
    assert 1 < max(most) <= 8


async def test_a_rate_holds_for_the_tasks_of_workflows(cluster: World) -> None:
    app = cluster.app()
    app.configure_queue("default", rate_limit="5/sec")
    starts: list[float] = []

    @app.task
    async def send(n: int) -> None:
        starts.append(time.monotonic())

    @app.workflow
    async def mail(ctx: semel.Context) -> None:
        for n in range(20):
            await ctx.execute_task(send, n)

    async with cluster.worker(app):
        await (await app.start_workflow(mail, workflow_id="mail")).result(timeout="30s")
    assert max(starts) - min(starts) > 1.5


ASKED: Any = None
"""What the SDK says about the poll that it wants a slot for."""


def use(slots: Slots, permit: Any, task: str = "known") -> None:
    context: Any = SimpleNamespace(permit=permit, slot_info=SimpleNamespace(activity_type=task))
    slots.mark_slot_used(context)


def release(slots: Slots, permit: Any) -> None:
    context: Any = SimpleNamespace(permit=permit, slot_info=None)
    slots.release_slot(context)


async def test_slots_are_shared_by_polls_and_by_tasks_that_are_handed_over() -> None:
    slots = Slots(2, {"known"})
    assert slots.try_reserve_slot(ASKED) is None  # nobody knows yet whether the queue has a rate limit
    slots.through_queue = False
    eager = slots.try_reserve_slot(ASKED)
    polled = await slots.reserve_slot(ASKED)
    assert eager is not None
    assert slots.try_reserve_slot(ASKED) is None
    waiting = asyncio.create_task(slots.reserve_slot(ASKED))
    await asyncio.sleep(0)
    release(slots, eager)
    await asyncio.wait_for(waiting, 60)
    release(slots, polled)
    assert slots.try_reserve_slot(ASKED) is not None


async def test_nothing_is_handed_over_for_a_while_after_a_task_that_is_not_known_here() -> None:
    slots = Slots(4, {"known"})
    slots.through_queue = False
    use(slots, await slots.reserve_slot(ASKED), "polled for and not known")
    use(slots, slots.try_reserve_slot(ASKED))
    eager = slots.try_reserve_slot(ASKED)
    assert eager is not None
    use(slots, eager, "handed over and not known")
    assert slots.try_reserve_slot(ASKED) is None
    assert await slots.reserve_slot(ASKED) is not None


async def test_closed_slots_are_not_given_and_those_in_use_are_waited_for() -> None:
    slots = Slots(5, {"known"})
    slots.through_queue = False
    running = [slots.try_reserve_slot(ASKED), await slots.reserve_slot(ASKED)]
    await slots.reserve_slot(ASKED)  # for a poll that is under way, which nobody waits for
    for permit in running:
        use(slots, permit)
    stopping = asyncio.create_task(slots.stop())
    await asyncio.sleep(0)
    assert slots.try_reserve_slot(ASKED) is None
    refused = asyncio.create_task(slots.reserve_slot(ASKED))
    await asyncio.to_thread(release, slots, running[0])
    await asyncio.sleep(0.01)
    assert not stopping.done()
    assert not refused.done()
    refused.cancel()
    await asyncio.to_thread(release, slots, running[1])
    await asyncio.wait_for(stopping, 60)


async def test_a_poll_that_is_under_way_when_a_worker_stops_takes_nothing(cluster: World) -> None:
    """The task that it brings is offered again, without counting an attempt, and another worker has it soon."""
    one, two, started, goes_on = cluster.app(), cluster.app(), asyncio.Event(), asyncio.Event()
    seen: list[tuple[str, int, int]] = []

    @one.task(name="work", retry=1)
    async def first_work(n: int) -> int:
        seen.append(("one", n, semel.current().attempt))
        started.set()
        await goes_on.wait()
        return n

    @two.task(name="work", retry=1)
    async def second_work(n: int) -> int:
        seen.append(("two", n, semel.current().attempt))
        return n

    first = await one.enqueue(first_work, 0)
    async with cluster.worker(one) as worker:
        await started.wait()
        stopping = asyncio.create_task(worker.stop())
        await cluster.takes_no_more(worker)
        others = [await one.enqueue(first_work, n) for n in range(1, 8)]
        async with cluster.worker(two):
            assert [await handle.result(timeout="30s") for handle in others] == list(range(1, 8))
        goes_on.set()
        await stopping
        assert await first.result(timeout="30s") == 0
    assert sorted(seen) == [("one", 0, 1), *(("two", n, 1) for n in range(1, 8))]
