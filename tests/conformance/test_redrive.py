"""A failed execution can be run again as a new one; the old one stays."""

import pytest

import semel
from tests.world import World, ended


class Shop:
    def __init__(self, app: semel.App) -> None:
        self.broken = True
        self.runs: list[str] = []

        @app.task(retry=1)
        async def charge(order: str) -> str:
            self.runs.append(order)
            if self.broken:
                raise ValueError("down")
            return f"charged {order}"

        self.charge = charge


@pytest.mark.parametrize("key", ["k", None])
async def test_it_runs_again_with_the_same_input_and_key(world: World, key: str | None) -> None:
    app = world.app()
    shop = Shop(app)
    async with world.worker(app):
        first = await app.enqueue(shop.charge, "o-1", task_id=key)
        assert await ended(first) == "failed"
        shop.broken = False
        again = await app.redrive(first.id)
        assert await again.result(timeout="60s") == "charged o-1"
    assert (again.id != first.id, again.key, again.duplicate) == (True, key, False)
    assert (await again.describe()).previous_id == first.id
    assert await first.status() == "failed"
    assert shop.runs == ["o-1", "o-1"]


async def test_what_was_cancelled_can_be_run_again(world: World) -> None:
    app = world.app()
    shop = Shop(app)
    shop.broken = False
    first = await app.enqueue(shop.charge, "o-1", task_id="k", delay="1h")
    await first.cancel()
    again = await app.redrive(first.id[:30])
    async with world.worker(app):
        assert await again.result(timeout="60s") == "charged o-1"


async def test_only_what_failed_can_be_run_again(world: World) -> None:
    app = world.app()
    shop = Shop(app)
    shop.broken = False
    handle = await app.enqueue(shop.charge, "o-1", task_id="k")
    with pytest.raises(semel.NotRedrivable, match="is pending"):
        await app.redrive(handle.id)
    async with world.worker(app):
        await handle.result(timeout="60s")
    with pytest.raises(semel.NotRedrivable, match="is completed"):
        await app.redrive(handle.id)
    with pytest.raises(semel.NotFound):
        await app.redrive("0" * 32)
    assert shop.runs == ["o-1"]


async def test_one_whose_key_has_moved_on_cannot(world: World) -> None:
    app = world.app()
    shop = Shop(app)
    first = await app.enqueue(shop.charge, "o-1", task_id="k")
    await first.cancel()
    await app.enqueue(shop.charge, "o-1", task_id="k")
    with pytest.raises(semel.NotRedrivable):
        await app.redrive(first.id)
    assert await world.count() == 2


async def test_twice_at_once_it_runs_once(world: World) -> None:
    app = world.app()
    first = await app.enqueue(Shop(app).charge, "o-1", task_id="k")
    await first.cancel()
    await app.redrive(first.id)
    with pytest.raises(semel.NotRedrivable):
        await app.redrive(first.id)
    assert await world.count() == 2
