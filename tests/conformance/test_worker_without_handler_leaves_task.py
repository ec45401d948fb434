"""A worker that does not know a function leaves its work for one that does: a rolling deploy looks like this."""

import asyncio
import logging
from typing import Any, NamedTuple

import pytest

import semel
from tests.world import World, eventually, waits

SOON = 20.0
"""Seconds in which everything is done once there is a worker that has the functions, on a machine that is busy."""


class Shop(NamedTuple):
    """What some workers have and others do not."""

    app: semel.App
    rare: Any
    parent: Any
    patient: Any
    counter: Any
    ran: list[str]


def shop(world: World) -> Shop:
    app = world.app()
    ran: list[str] = []

    @app.task(retry=1)
    async def rare(what: str) -> str:
        ran.append(what)
        return what

    @app.workflow
    async def child(ctx: semel.Context, what: str) -> str:
        return await ctx.execute_task(rare, what)

    @app.workflow
    async def parent(ctx: semel.Context, what: str) -> str:
        return await (await ctx.start_workflow(child, what, workflow_id=f"child of {what}")).result()

    @app.workflow
    async def patient(ctx: semel.Context) -> str:
        return str(await ctx.wait_signal("go"))

    @app.entity
    class Counter:
        count: int = 0

        @semel.handler
        async def add(self, ctx: semel.Context, n: int) -> int:
            self.count += n
            return self.count

    return Shop(app, rare, parent, patient, Counter, ran)


def without_them(world: World) -> tuple[semel.App, Any]:
    app = world.app()

    @app.task
    async def common() -> str:
        return "common"

    return app, common


async def test_it_is_neither_run_nor_failed_nor_counted(world: World) -> None:
    knows, other = world.app(), world.app()

    @knows.task
    async def rare() -> str:
        return "ran"

    @other.task
    async def common() -> str:
        return "common"

    handle = await knows.enqueue(rare)
    async with world.worker(other):
        assert await (await other.enqueue(common)).result(timeout="60s") == "common"
        await world.advance("1m")
        assert await (await other.enqueue(common)).result(timeout="60s") == "common"

        async def waits_untouched() -> (
            bool
        ):  # on Temporal it may be with the other worker for a blink, which hands it back
            execution = await handle.describe()
            return (execution.status, execution.attempt) == ("pending", 0)

        await eventually(waits_untouched)
        async with world.worker(knows):
            assert await handle.result(timeout="60s") == "ran"
    assert (await handle.describe()).attempt == 1


@pytest.mark.slow
async def test_a_worker_that_joins_later_does_it_at_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A task, a workflow and its child, an entity; and a workflow and an entity that have begun before."""
    has, (other, common) = shop(world), without_them(world)
    app = has.app
    async with world.worker(app):
        midway = await waits(await app.start_workflow(has.patient, workflow_id="midway"))
        assert await app.entity(has.counter, "old").ask("add", 1, timeout="60s") == 1
    with caplog.at_level(logging.WARNING, "semel.worker"):
        async with world.worker(other):
            task = await app.enqueue(has.rare, "a task", task_id="a task")
            flow = await app.start_workflow(has.parent, "a workflow", workflow_id="a workflow")
            await midway.signal("go", "gone")
            await app.entity(has.counter, "old").send("add", 1)
            await app.entity(has.counter, "new").send("add", 1)
            for _ in range(3):  # meanwhile its own work is done, again and again
                assert await (await other.enqueue(common)).result(timeout="60s") == "common"
                await asyncio.sleep(world.a_moment)
            assert has.ran == []
            async with world.worker(app), asyncio.timeout(SOON):
                assert await task.result() == "a task"
                assert await flow.result() == "a workflow"
                assert await midway.result() == "gone"
                assert await app.entity(has.counter, "old").ask("add", 1) == 3
                assert await app.entity(has.counter, "new").ask("add", 1) == 2
    assert sorted(has.ran) == ["a task", "a workflow"]
    assert (await task.describe()).attempt == 1
    assert not [record for record in caplog.records if record.levelno > logging.WARNING]


@pytest.mark.slow
async def test_half_of_the_workers_have_it(world: World) -> None:
    """Both kinds serve the same queue: nothing fails, nothing runs twice, and nothing waits for long."""
    has, (other, common) = shop(world), without_them(world)
    app, names = has.app, [f"n{n}" for n in range(6)]
    async with world.worker(other), world.worker(app), asyncio.timeout(2 * SOON):
        tasks = [await app.enqueue(has.rare, f"task {name}", task_id=name) for name in names]
        flows = [await app.start_workflow(has.parent, f"flow {name}", workflow_id=name) for name in names]
        others = [await other.enqueue(common) for _ in names]
        asked = asyncio.gather(*(app.entity(has.counter, name).ask("add", 1) for name in names))
        assert [await handle.result() for handle in tasks] == [f"task {name}" for name in names]
        assert [await handle.result() for handle in flows] == [f"flow {name}" for name in names]
        assert [await handle.result() for handle in others] == ["common"] * len(names)
        assert await asked == [1] * len(names)
    assert sorted(has.ran) == sorted(f"{kind} {name}" for kind in ("task", "flow") for name in names)
    assert {(await handle.describe()).attempt for handle in tasks} == {1}
