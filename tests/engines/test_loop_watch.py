"""Code that blocks the event loop of a worker is named: whose it is, and at which line."""

import sys
import time

import pytest

import semel
from semel.runtime.loop_watch import describe_stack
from tests.world import World


@pytest.mark.slow
async def test_a_workflow_that_blocks_is_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    app = world.app()

    def blocked() -> list[str]:
        return [line for line in caplog.messages if "the event loop is blocked" in line]

    @app.workflow
    async def greedy(ctx: semel.Context) -> None:
        end = time.monotonic() + 20
        while not blocked() and time.monotonic() < end:
            sum(range(10_000))

    async with world.worker(app):
        handle = await app.start_workflow(greedy, workflow_id="w")
        await handle.result(timeout="30s")
    (line,) = blocked()
    assert "by workflow greedy 'w' at " in line
    assert "test_loop_watch.py:" in line
    assert "in greedy" in line


def test_code_of_nobody_is_named_by_its_line() -> None:
    whose, line = describe_stack(sys._getframe())
    assert whose.name == ""
    assert line.endswith("in test_code_of_nobody_is_named_by_its_line")
