"""A key belongs to one function."""

import pytest

import semel
from tests.world import World


async def test_the_same_key_for_another_function_is_refused(world: World) -> None:
    app = world.app()

    @app.task
    async def charge(order: str) -> None: ...

    @app.task
    async def refund(order: str) -> None: ...

    first = await app.enqueue(charge, "o-1", task_id="o-1")
    with pytest.raises(semel.KeyConflict, match=r"of another function \(charge -> refund\)") as caught:
        await app.enqueue(refund, "o-1", task_id="o-1")
    assert caught.value.existing_execution_id == first.id
    assert await world.count() == 1


async def test_a_failed_one_gives_its_key_to_another_function_too(world: World) -> None:
    app = world.app()

    @app.task
    async def charge(order: str) -> None: ...

    @app.task
    async def refund(order: str) -> None: ...

    first = await app.enqueue(charge, "o-1", task_id="o-1")
    await first.cancel()
    second = await app.enqueue(refund, "o-1", task_id="o-1")
    assert (second.duplicate, (await second.describe()).previous_id) == (False, first.id)
