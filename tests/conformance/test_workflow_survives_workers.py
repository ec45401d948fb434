"""Whatever becomes of a worker, a workflow goes on where it was: nothing is lost, and nothing is written by two."""

import asyncio

import pytest

import semel
from tests.world import World, ended, eventually, waits

pytestmark = pytest.mark.slow


async def test_a_worker_that_stops_in_the_middle_gives_it_back(world: World) -> None:
    app, runs = world.app(), []

    async def first() -> None:
        runs.append("first")

    async def second() -> str:
        runs.append("second")
        if runs.count("second") == 1:
            await asyncio.Event().wait()
        return "done"

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        await ctx.step(first)
        return await ctx.step(second)

    async with world.worker(app, grace=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: "second" in runs)

    async def is_given_back() -> bool:
        return await handle.status() == "pending"

    await eventually(is_given_back)
    async with world.worker(app):
        assert await handle.result(timeout="60s") == "done"
    assert runs == ["first", "second", "second"]


async def test_a_worker_that_drains_lets_a_step_end(world: World) -> None:
    app, runs, goes_on = world.app(), [], asyncio.Event()

    async def step() -> None:
        runs.append(1)
        await goes_on.wait()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        await ctx.step(step)
        return "done"

    async with world.worker(app, grace="20s") as worker:
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: runs)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.01)
        goes_on.set()
        await stopping
    assert await handle.status() == "completed"
    assert runs == [1]


async def test_many_workers_that_come_and_go_lose_nothing(world: World) -> None:
    app, runs = world.app(), []

    @app.task
    async def work(n: int) -> int:
        runs.append(n)
        return n

    @app.workflow
    async def flow(ctx: semel.Context, n: int) -> list[int]:
        got = [await ctx.execute_task(work, n * 10 + i, task_id=f"{n}.{i}") for i in range(5)]
        await ctx.step(runs.append, -1)
        return got

    handles = [await app.start_workflow(flow, n, workflow_id=f"k{n}") for n in range(5)]
    results = asyncio.gather(*(handle.result(timeout="100s") for handle in handles))
    while not results.done():  # each gets something done, and not everything
        enough = len(runs) + 3
        async with world.worker(app, grace=0, cached_workflows=3):
            await eventually(lambda enough=enough: len(runs) >= enough or results.done(), within=100)
    assert await results == [[n * 10 + i for i in range(5)] for n in range(5)]


@pytest.mark.journal("takes the lease of a worker away")
async def test_the_turn_of_a_worker_that_has_lost_its_lease_is_refused(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = world.app(), world.app()
    zombie_may_go_on, runs = asyncio.Event(), []

    async def step() -> str:
        runs.append(1)
        if len(runs) == 1:
            await zombie_may_go_on.wait()
            return "zombie"
        return "heir"

    for app in (one, two):

        @app.workflow
        async def flow(ctx: semel.Context) -> str:
            result = await ctx.step(step)
            ctx.publish("result", result)
            await ctx.wait_signal("go")
            return result

    handle = await one.start_workflow(flow, workflow_id="k")
    async with world.worker(one, grace=0) as zombie:
        await eventually(lambda: runs)
        await world.cut_off(zombie)
        async with world.worker(two):
            await world.advance("31s")
            await waits(handle)
            zombie_may_go_on.set()
            await eventually(lambda: "another worker" in caplog.text)
            await eventually(lambda: not zombie.busy)
            assert await handle.published("result") == "heir"
            await handle.signal("go")
            assert await handle.result(timeout="60s") == "heir"
    assert len(runs) == 2


@pytest.mark.journal("takes the lease of a worker away")
async def test_one_that_kills_its_workers_is_given_up(world: World) -> None:
    apps, runs = [world.app() for _ in range(11)], []

    async def hang() -> None:
        runs.append(1)
        await asyncio.Event().wait()

    for app in apps:

        @app.workflow
        async def flow(ctx: semel.Context) -> None:
            await ctx.step(hang)

    handle = await apps[0].start_workflow(flow, workflow_id="k")
    for n, app in enumerate(apps[:10], 1):
        worker = app.worker(grace=0)
        dead = await worker.__aenter__()
        await eventually(lambda n=n: len(runs) == n)
        await world.cut_off(dead)  # type: ignore[arg-type]
        async with world.worker(apps[10], queues=["none"]):
            await world.advance("31s")
            await eventually(lambda: is_free(world))
        await worker.__aexit__(None, None, None)
    assert await ended(handle) == "failed"
    assert "worker died" in (await handle.describe()).error.message  # type: ignore[union-attr]
    assert await world.left() == 0


async def is_free(world: World) -> bool:
    return (await world.sql("select count(*) from semel_ready where owner is not null"))[0][0] == 0


async def test_its_time_limit(world: World) -> None:
    app, did = world.app(), []

    @app.workflow(timeout="1h")
    async def flow(ctx: semel.Context) -> None:
        try:
            await asyncio.sleep(3600 * 24)
        finally:
            await ctx.step(did.append, "cleaned up")

    async with world.worker(app, cached_workflows=0):
        handle = await waits(await app.start_workflow(flow, workflow_id="k"))
        await world.advance("61m")
        assert await ended(handle) == "timed_out"
        with pytest.raises(semel.ExecutionTimedOut, match="3600 s"):
            await handle.result(timeout="60s")
        other = await app.start_workflow(flow, workflow_id="k")
        assert not other.duplicate
    assert did == ["cleaned up"]


async def test_a_failed_one_can_be_run_again(world: World) -> None:
    app, fails, runs = world.app(), [True], []

    @app.task(retry=1)
    async def work(n: int) -> int:
        runs.append(n)
        if fails and n == 2:
            raise ConnectionError
        return n

    @app.workflow
    async def flow(ctx: semel.Context) -> list[int]:
        return [await ctx.execute_task(work, n, task_id=f"t{n}") for n in range(4)]

    async with world.worker(app):
        old = await app.start_workflow(flow, workflow_id="k")
        assert await ended(old) == "failed"
        fails.clear()
        new = await app.redrive(old.id)
        assert await new.result(timeout="60s") == [0, 1, 2, 3]
        with pytest.raises(semel.NotRedrivable):
            await app.redrive(new.id)
    assert runs == [0, 1, 2, 2, 3], "what had completed under its key is not done again"
    assert [e.id for e in (await app.explain("k", kind="workflow")).executions] == [new.id, old.id]


@pytest.mark.slow
@pytest.mark.journal("takes minutes on a cluster: see docs/reference/engines.md")
async def test_ten_thousand_steps(world: World, caplog: pytest.LogCaptureFixture) -> None:
    app, runs = world.app(), []

    def step(n: int) -> int:
        runs.append(n)
        return n

    @app.workflow
    async def flow(ctx: semel.Context) -> int:
        total = 0
        for n in range(0, 10_000, 10):
            total += sum(await asyncio.gather(*(ctx.step(step, n + i) for i in range(10))))
            if n == 9_000:
                await ctx.wait_signal("go")
        return total

    async with world.worker(app):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: is_waiting(handle), within=100)
    async with world.worker(app):
        await handle.signal("go")
        assert await handle.result(timeout="60s") == sum(range(10_000))
    assert sorted(runs) == list(range(10_000))
    assert caplog.text.count("let it continue_as_new now and then") >= 1


async def is_waiting(handle: semel.Handle[object]) -> bool:
    return await handle.status() == "waiting"
