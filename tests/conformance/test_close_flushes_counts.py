"""Closing an app writes down what it still had in memory."""

from tests.world import World


async def test_suppressed_duplicates_are_counted_at_close(world: World) -> None:
    app, reader = world.app(), world.app()

    @app.task
    async def work() -> None: ...

    for _ in range(4):
        await app.enqueue(work, task_id="k")
    await app.close()
    (joined,) = (await reader.explain("k")).suppressed
    assert joined.count == 3


async def test_requests_under_way_are_finished(world: World) -> None:
    app, reader = world.app(), world.app()

    @app.task
    async def work(n: int) -> None: ...

    await app.enqueue_many([work.call(n) for n in range(10)])
    await app.close()
    await world.listed()
    assert len(await reader.list()) == 10


async def test_a_closed_app_can_be_used_again(world: World) -> None:
    app = world.app()

    @app.task
    async def work() -> str:
        return "done"

    first = await app.enqueue(work, task_id="k")
    await app.close()
    await app.close()
    async with world.worker(app):
        assert await first.result(timeout="20s") == "done"
