"""Delayed tasks that become due one after the other each start on time."""

from tests.world import World


async def test_the_second_does_not_wait_for_the_next_heartbeat(world: World) -> None:
    app = world.app()

    @app.task
    async def work(n: int) -> int:
        return n

    async with world.worker(app, lease="10m"):
        handles = [await app.enqueue(work, n, delay=f"{n}0ms") for n in range(1, 6)]
        assert [await handle.result(timeout="60s") for handle in handles] == [1, 2, 3, 4, 5]
