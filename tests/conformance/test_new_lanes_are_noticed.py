"""Work on a lane that nobody has used before begins at once, also when it is announced together with known ones."""

from __future__ import annotations

import asyncio

import semel
from tests.world import World


async def test_the_first_task_of_the_first_workflow_does_not_wait_for_the_next_heartbeat(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    @app.workflow
    async def child(ctx: semel.Context) -> None: ...

    @app.workflow
    async def flow(ctx: semel.Context) -> str:
        told, _ = await asyncio.gather(ctx.execute_task(work), ctx.execute_workflow(child, workflow_id="child"))
        return told

    handle = await app.start_workflow(flow, workflow_id="f")
    async with world.worker(app, lease="10m"):
        assert await handle.result(timeout="60s") == "done"
