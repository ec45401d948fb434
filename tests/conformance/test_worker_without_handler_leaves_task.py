"""A worker that does not know a task leaves it for one that does."""

from tests.world import World


async def test_it_is_neither_run_nor_failed_nor_counted(world: World) -> None:
    knows, other = world.app(), world.app()

    @knows.task
    async def rare() -> str:
        return "ran"

    @other.task
    async def common() -> str:
        return "common"

    handle = await knows.enqueue(rare)
    async with world.worker(other):
        assert await (await other.enqueue(common)).result(timeout="20s") == "common"
        await world.advance("1m")
        assert await (await other.enqueue(common)).result(timeout="20s") == "common"
        execution = await handle.describe()
        assert (execution.status, execution.attempt) == ("pending", 0)
        async with world.worker(knows):
            assert await handle.result(timeout="20s") == "ran"
    assert (await handle.describe()).attempt == 1
