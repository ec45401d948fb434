"""Nothing that people's own objects do while they are read, compared or printed takes the worker with it."""

from __future__ import annotations

from typing import Any

import pytest

import semel
from tests.world import World, ended

RAISED = (SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError)


def hostile(raised: type[BaseException]) -> type[Exception]:
    """An exception of which nothing can be asked."""

    class Hostile(Exception):
        def _refuse(self, *_: Any) -> Any:
            raise raised

        __str__ = __repr__ = __eq__ = __ne__ = __bool__ = __len__ = __iter__ = __reduce__ = __format__ = _refuse
        __hash__ = _refuse
        __notes__ = property(_refuse)
        args = property(_refuse)

    return Hostile


@pytest.mark.parametrize("raised", RAISED, ids=lambda kind: kind.__name__)
async def test_an_exception_that_cannot_be_read_fails_its_execution_alone(
    world: World, raised: type[BaseException]
) -> None:
    app = world.app()
    error = hostile(raised)

    @app.task(retry=semel.Retry(max_attempts=2, initial="10ms", non_retryable=("Other",)))
    async def raises() -> None:
        raise error

    @app.task(retry=1)
    def raises_in_a_thread() -> None:
        raise error from error()

    @app.workflow
    async def raises_in_a_workflow(ctx: semel.Context) -> None:
        raise error

    def step() -> None:
        raise error

    @app.workflow
    async def raises_in_a_step(ctx: semel.Context) -> None:
        await ctx.step(step)

    @app.task
    async def works() -> str:
        return "it lives"

    async with world.worker(app):
        asked = [await app.enqueue(raises), await app.enqueue(raises_in_a_thread)]
        asked += [await app.start_workflow(raises_in_a_workflow, workflow_id="w")]
        asked += [await app.start_workflow(raises_in_a_step, workflow_id="s")]
        assert {await ended(one) for one in asked} == {"failed"}
        assert await (await app.enqueue(works)).result(timeout="30s") == "it lives"


async def test_a_result_that_cannot_be_read_fails_its_execution_alone(world: World) -> None:
    app = world.app()

    class Hostile:
        def __getattribute__(self, name: str) -> Any:
            raise SystemExit

    @app.task(retry=1)
    async def gives() -> Any:
        return Hostile()

    @app.task
    async def works() -> str:
        return "it lives"

    async with world.worker(app):
        assert await ended(await app.enqueue(gives)) == "failed"
        assert await (await app.enqueue(works)).result(timeout="30s") == "it lives"
