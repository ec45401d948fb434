"""dedup_window shorter than retention: the key is free while the history is still there."""

from tests.world import World


async def test_the_key_runs_again_and_the_old_result_stays(world: World) -> None:
    app, runs = world.app(), []

    @app.task(retention="7d", dedup_window="1h")
    async def report() -> int:
        runs.append(1)
        return len(runs)

    async with world.worker(app):
        first = await app.enqueue(report, task_id="k")
        assert await first.result(timeout="60s") == 1
        assert (await app.enqueue(report, task_id="k")).duplicate
        await world.advance("61m")
        second = await app.enqueue(report, task_id="k")
        assert not second.duplicate
        assert await second.result(timeout="60s") == 2
        await world.clean(app)
        assert await first.result(timeout="60s") == 1
    assert [one.id for one in (await app.explain("k")).executions] == [second.id, first.id]


async def test_no_window_at_all_deduplicates_only_what_is_under_way(world: World) -> None:
    app = world.app()

    @app.task(retention="7d", dedup_window="0")
    async def report() -> None: ...

    first = await app.enqueue(report, task_id="k")
    assert (await app.enqueue(report, task_id="k")).duplicate
    async with world.worker(app):
        await first.result(timeout="60s")
    assert not (await app.enqueue(report, task_id="k")).duplicate
