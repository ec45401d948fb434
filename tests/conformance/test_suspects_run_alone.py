"""Tasks whose worker died twice run one at a time, so that a poison task dies alone."""

import asyncio

import pytest

import semel
from tests.world import World, eventually


@pytest.mark.journal("about a lane of its own for suspects")
async def test_after_two_deaths_they_take_turns(world: World) -> None:
    state = {"runs": 0, "now": 0, "most": 0}
    hold = asyncio.Event()

    def define() -> semel.App:
        app = world.app()

        @app.task(retry=9)
        async def suspect() -> int:
            state["runs"] += 1
            if state["runs"] <= 6:
                await hold.wait()
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
            await asyncio.sleep(0.005)
            state["now"] -= 1
            return semel.current().attempt

        @app.task
        async def healthy() -> None: ...

        return app

    apps = [define() for _ in range(3)]
    handles = [await apps[0].enqueue(apps[0].tasks["suspect"]) for _ in range(3)]
    for at in range(2):
        async with world.worker(apps[at], grace=0) as dies:
            await eventually(lambda n=at: state["runs"] == 3 * (n + 1))
            await world.cut_off(dies)
            async with world.worker(apps[2], queues=["elsewhere"]):
                await world.advance("31s")
                await eventually(lambda: free(world))
    async with world.worker(apps[2]):
        assert [await handle.result(timeout="60s") for handle in handles] == [3, 3, 3]
        await (await apps[2].enqueue(apps[2].tasks["healthy"])).result(timeout="60s")
    assert (state["runs"], state["most"]) == (9, 1)


async def free(world: World) -> bool:
    return await world.sql("select count(*) from semel_ready where owner is null") == [(3,)]
