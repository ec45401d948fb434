"""Without a task_id a task runs each time it is asked for."""

from tests.world import World


async def test_each_call_is_an_execution_of_its_own(world: World) -> None:
    app, runs = world.app(), []

    @app.task
    async def count(n: int) -> int:
        runs.append(n)
        return len(runs)

    handles = [await app.enqueue(count, 1) for _ in range(3)]
    assert len({handle.id for handle in handles}) == 3
    assert {(handle.key, handle.duplicate) for handle in handles} == {(None, False)}
    async with world.worker(app):
        assert sorted([await handle.result(timeout="60s") for handle in handles]) == [1, 2, 3]
    assert runs == [1, 1, 1]
    assert (await handles[0].describe()).window_ends_at is None
