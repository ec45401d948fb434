"""Ids sort by the clocks of the machines that made them, which differ: they do not tell what was sent before."""

from __future__ import annotations

from semel.engine.requests import request
from tests.conformance.test_a_start_may_be_sent_again import end
from tests.world import World


async def test_a_request_sent_again_is_known_though_the_clock_of_who_followed_is_behind(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retry=1)
    async def charge() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise ValueError("not yet")
        return "done"

    second, first = (request(app.settings, charge, (), {}, task_id="k", reuse="failed_only") for _ in range(2))
    assert second.id < first.id
    async with world.worker(app):
        for start in (first, second):
            assert (await app.engine.start(start)).id == start.id
            await end(app, start.id)
        for _ in range(3):  # also when duplicates prevail
            assert [(await app.engine.start(start)).id for start in (first, second)] == [first.id, second.id]
    assert len(runs) == 2
