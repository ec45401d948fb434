"""What is counted of duplicates goes when their execution goes, and does not come back."""

import pytest

from tests.world import World


@pytest.mark.journal("counts are rows of their execution")
async def test_a_count_that_comes_too_late_is_dropped(world: World) -> None:
    app = world.app()

    @app.task(retention="1h")
    async def work() -> None: ...

    async with world.worker(app):
        await (await app.enqueue(work, task_id="k")).result(timeout="60s")
        assert (await app.enqueue(work, task_id="k")).duplicate  # counted in memory, written a moment later
        await world.advance("2h")
        assert await app.clean() >= 0
    await app.close()
    assert await world.count() == 0
    assert await world.count("semel_duplicate") == 0
