"""The same key gives the same execution, and its result is shared."""

from tests.world import World


async def test_a_duplicate_joins_the_first_and_shares_its_result(world: World) -> None:
    app = world.app()
    runs = []

    @app.task
    async def charge(order: str, cents: int) -> dict[str, int]:
        runs.append(order)
        return {"charged": cents}

    first = await app.enqueue(charge, "o-1", 9900, task_id="pay-1")
    second = await app.enqueue(charge, "o-1", cents=9900, task_id="pay-1")
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.id == second.id
    async with world.worker(app):
        assert await second.result(timeout="60s") == {"charged": 9900}
        assert await first.result(timeout="60s") == {"charged": 9900}
        third = await app.enqueue(charge, "o-1", 9900, task_id="pay-1")
        assert third.duplicate
        assert await third.result(timeout="60s") == {"charged": 9900}
    assert runs == ["o-1"]
