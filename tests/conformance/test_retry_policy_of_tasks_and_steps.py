"""Every field of a retry policy means the same for a task, for a step of a workflow and for a step of an entity."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import semel
from tests.world import World, ended

STEEP = semel.Retry(max_attempts=5, initial="10s", factor=3, maximum="40s", jitter=0.5)
WAITS = [(1, 5.0, 15.0), (2, 15.0, 45.0), (3, 20.0, 60.0), (4, 20.0, 60.0)]
"""Of STEEP: after each attempt but the last, the shortest and the longest wait."""


class Declined(Exception):
    pass


class Stolen(Declined):
    pass


def policy(**fields: Any) -> semel.Retry:
    return semel.Retry(max_attempts=3, initial=0, **fields)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[int, float, float]]]:
    """The waits that a policy was asked for, by the name of what waits; nothing does wait."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    real: Callable[[semel.Retry, int, float], float] = semel.Retry.delay

    def delay(self: semel.Retry, attempt: int, dice: float) -> float:
        assert 0.0 <= dice < 1.0
        found.setdefault(semel.current().name, []).append((attempt, real(self, attempt, 0.0), real(self, attempt, 1.0)))
        return 0.0

    monkeypatch.setattr(semel.Retry, "delay", delay)
    return found


async def test_attempts_and_waits_are_those_of_the_policy(
    world: World, waits: dict[str, list[tuple[int, float, float]]]
) -> None:
    app, runs = world.app(), list[tuple[str, int, int]]()

    def fail() -> None:
        now = semel.current()
        runs.append((now.name, now.attempt, now.max_attempts))
        raise ConnectionError("away")

    @app.task(retry=STEEP)
    async def in_a_task() -> None:
        fail()

    @app.task(retry=STEEP)
    def a_task_as_a_step() -> None:
        fail()

    async def try_all(ctx: semel.Context, where: str) -> None:
        for fn, options in (
            (fail, {"name": f"in-a-step-of-{where}", "retry": STEEP}),
            (a_task_as_a_step, {"name": f"a-task-in-{where}"}),
        ):
            with pytest.raises(semel.ExecutionFailed, match="away"):
                await ctx.step(fn, **options)

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await try_all(ctx, "a-workflow")

    @app.entity
    class Account:
        tried: int = 0

        @semel.handler
        async def pay(self, ctx: semel.EntityContext) -> None:
            await try_all(ctx, "an-entity")

    async with world.worker(app):
        assert await ended(await app.enqueue(in_a_task)) == "failed"
        await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
        await app.entity(Account, "a").ask("pay", timeout="60s")
    names = ["in_a_task"] + [f"{how}-{where}" for where in ("a-workflow", "an-entity")
                             for how in (("in-a-step-of"), ("a-task-in"))]  # fmt: skip
    assert runs == [(name, attempt, 5) for name in names for attempt in range(1, 6)]
    assert waits == dict.fromkeys(names, WAITS)


@pytest.mark.parametrize(
    "entry", [Declined, "Declined", f"{__name__}.Declined"], ids=["by class", "by name", "by qualified name"]
)
async def test_what_is_not_retryable_is_tried_once(world: World, entry: type[BaseException] | str) -> None:
    app, runs = world.app(), list[str]()
    never = policy(non_retryable=(entry,))

    @app.task(retry=never)
    async def in_a_task() -> None:
        runs.append("task")
        raise Stolen

    def declines() -> None:
        runs.append("sync")
        raise Declined

    async def is_stolen() -> None:
        runs.append("async")
        await asyncio.sleep(0)
        raise Stolen

    async def is_away() -> None:
        runs.append("away")
        raise ConnectionError

    async def try_all(ctx: semel.Context) -> None:
        for fn in (declines, is_stolen, is_away):
            with pytest.raises(semel.ExecutionFailed):
                await ctx.step(fn, retry=never)

    @app.workflow
    async def flow(ctx: semel.Context) -> None:
        await try_all(ctx)

    @app.entity
    class Account:
        tried: int = 0

        @semel.handler
        async def pay(self, ctx: semel.EntityContext) -> None:
            await try_all(ctx)

    async with world.worker(app):
        assert await ended(await app.enqueue(in_a_task)) == "failed"
        await (await app.start_workflow(flow, workflow_id="k")).result(timeout="60s")
        await app.entity(Account, "a").ask("pay", timeout="60s")
    assert runs == ["task", *["sync", "async", "away", "away", "away"] * 2]


async def test_a_task_that_runs_as_a_step_keeps_its_timeout_for_each_attempt(world: World) -> None:
    app, runs = world.app(), list[int]()

    @app.task(timeout="30ms", retry=policy())
    async def hangs() -> None:
        runs.append(semel.current().attempt)
        await asyncio.Event().wait()

    @app.task(timeout="30ms", retry=policy())
    async def hangs_once() -> str:
        if semel.current().attempt == 1:
            await asyncio.Event().wait()
        return "well"

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        with pytest.raises(semel.ExecutionTimedOut, match=r"'hangs' timed out: ran longer than its timeout of 0.03 s"):
            await ctx.step(hangs)
        well: str = await ctx.step(hangs_once)
        return well

    async with world.worker(app, cached_workflows=0):
        handle = await app.start_workflow(flow, workflow_id="k")
        assert await handle.result(timeout="60s") == "well"
    assert runs == [1, 2, 3]
