"""A task of a workflow is run by the worker that has the workflow, without a way through its queue; limits hold."""

import asyncio
import time
from pathlib import Path

import pytest

import semel
from semel.engines.temporal.seating import Seats
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


async def test_seats_are_shared_by_those_who_poll_and_those_who_are_handed_a_task() -> None:
    seats = Seats(2)
    assert not seats.take_handed()  # nobody knows yet whether the queue has a rate limit
    seats.through_queue = False
    assert seats.take_handed()
    await seats.take()
    assert not seats.take_handed()
    waiting = asyncio.create_task(seats.take())
    await asyncio.sleep(0)
    seats.give(handed=True)
    await asyncio.wait_for(waiting, 5)
    seats.give(handed=False)
    seats.shy()
    assert not seats.take_handed()


async def test_seats_are_left_before_a_worker_ends_or_given_up() -> None:
    seats = Seats(3)
    seats.through_queue = False
    assert [seats.take_handed(), seats.take_handed()] == [True, True]
    stopping = asyncio.create_task(seats.stop())
    await asyncio.sleep(0)
    assert not seats.take_handed()
    await asyncio.to_thread(seats.give, handed=True)
    await asyncio.sleep(0.01)
    assert not stopping.done()
    seats.leave()
    await asyncio.wait_for(stopping, 5)
