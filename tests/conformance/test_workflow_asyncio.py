"""Asyncio in workflow code is durable: each piece of it does the same again from the journal.

With no workflow cached, every turn begins with a replay of all that went before.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import semel
from tests.world import World, eventually

Code = Callable[[semel.Context, Any], Coroutine[Any, Any, Any]]


async def sleeps(ctx: semel.Context, work: Any) -> Any:
    began = ctx.now()
    await asyncio.sleep(3600)
    await ctx.sleep("2h")
    return (ctx.now() - began).total_seconds() >= 3 * 3600


async def gathers(ctx: semel.Context, work: Any) -> Any:
    return await asyncio.gather(*(ctx.execute_task(work, n) for n in range(5)), asyncio.sleep(60, "slept"))


async def gathers_with_errors(ctx: semel.Context, work: Any) -> Any:
    found = await asyncio.gather(ctx.execute_task(work, 1), ctx.execute_task(work, -1), return_exceptions=True)
    return [one if isinstance(one, int) else type(one).__name__ for one in found]


async def waits_for_the_first(ctx: semel.Context, work: Any) -> Any:
    tasks = {asyncio.create_task(asyncio.sleep(n * 60, n)): n for n in range(1, 6)}
    order: list[int] = []
    while tasks:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        order += [tasks.pop(one) for one in done]
        await ctx.step(lambda: None)
    return sorted(order)


async def takes_sets_in_the_same_order(ctx: semel.Context, work: Any) -> Any:
    tasks = [asyncio.create_task(ctx.execute_task(work, n)) for n in range(20)]
    done, _ = await asyncio.wait(tasks)
    found = [one.result() for one in done]
    for one in found:
        await ctx.step(str, one)  # in another order this would not be what the journal says
    return sorted(found)


async def takes_them_as_they_complete(ctx: semel.Context, work: Any) -> Any:
    found = []
    for one in asyncio.as_completed([ctx.execute_task(work, n) for n in range(5)]):
        found.append(await one)
        await ctx.step(str, found[-1])
    return sorted(found)


async def runs_out_of_time(ctx: semel.Context, work: Any) -> Any:
    heard = []
    try:
        async with asyncio.timeout(60):
            await ctx.wait_signal("never")
    except TimeoutError:
        heard.append("timeout")
    try:
        await asyncio.wait_for(ctx.wait_signal("never"), 60)
    except TimeoutError:
        heard.append("wait_for")
    async with asyncio.timeout(3600):
        heard.append(await ctx.execute_task(work, 1))
    heard.append(await asyncio.wait_for(ctx.execute_task(work, 2), 3600))
    return heard


async def groups(ctx: semel.Context, work: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.execute_task(work, n)) for n in range(3)]
        tasks.append(group.create_task(asyncio.sleep(60, "slept")))
    found: list[Any] = [task.result() for task in tasks]
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600 * 24 * 365))
            group.create_task(ctx.execute_task(work, -1))
    except* semel.ExecutionFailed as failed:
        found.append(len(failed.exceptions))
    return found


async def passes_things_on(ctx: semel.Context, work: Any) -> Any:
    queue: asyncio.Queue[Any] = asyncio.Queue(2)
    event, lock, slots, found = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(2), []

    async def make() -> None:
        for n in range(6):
            async with slots:
                await queue.put(await ctx.execute_task(work, n))
        await asyncio.sleep(60)
        event.set()

    async def take() -> None:
        while True:
            one = await queue.get()
            async with lock:
                found.append(await ctx.step(lambda one=one: one * 10))
            queue.task_done()

    tasks = [asyncio.create_task(one) for one in (make(), take(), take())]
    await event.wait()
    await queue.join()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sorted(found)


async def shields(ctx: semel.Context, work: Any) -> Any:
    kept = asyncio.create_task(asyncio.sleep(120, "kept"))
    try:
        await asyncio.wait_for(asyncio.shield(kept), 60)
    except TimeoutError:
        return await kept


EXPECTED: dict[Code, Any] = {
    sleeps: True,
    gathers: [0, 1, 2, 3, 4, "slept"],
    gathers_with_errors: [1, "ExecutionFailed"],
    waits_for_the_first: [1, 2, 3, 4, 5],
    takes_sets_in_the_same_order: list(range(20)),
    takes_them_as_they_complete: [0, 1, 2, 3, 4],
    runs_out_of_time: ["timeout", "wait_for", 1, 2],
    groups: [0, 1, 2, "slept", 1],
    passes_things_on: [0, 10, 20, 30, 40, 50],
    shields: "kept",
}


@pytest.mark.parametrize("code", EXPECTED, ids=lambda code: code.__name__)
async def test_it_works_and_does_the_same_from_the_journal(world: World, code: Code) -> None:
    app = world.app()
    assert inspect.iscoroutinefunction(code)

    @app.task(retry=1)
    async def work(n: int) -> int:
        if n < 0:
            raise ValueError(n)
        return n

    @app.workflow
    async def flow(ctx: semel.Context) -> Any:
        return await code(ctx, work)

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        await eventually(lambda: has_ended_or_needs_time(world, handle))
        assert await handle.result(timeout="60s") == EXPECTED[code]


async def has_ended_or_needs_time(world: World, handle: semel.Handle[Any]) -> bool:
    """Time passes for those who wait for it, and for nothing else."""
    execution = await handle.describe()
    if execution.status.terminal:
        return True
    assert execution.error is None, execution.error
    if execution.status == "waiting" and execution.run_at is not None and await world.at_rest():
        await world.advance("61s" if (execution.run_at - world.now()).total_seconds() < 61 else "1h")
    return False


async def test_a_task_in_the_background_ends_with_its_workflow(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        background = asyncio.create_task(asyncio.sleep(3600 * 24))
        await ctx.step(lambda: None)
        assert not background.done()
        return "done"

    async with world.worker(app):
        assert await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s") == "done"


async def test_threads_and_executors_are_refused(world: World) -> None:
    app = world.app()

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        try:
            await asyncio.to_thread(print, "x")
        except semel.Forbidden as error:
            return error.message
        return ""

    async with world.worker(app):
        assert "to_thread" in await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
