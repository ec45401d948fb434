"""The same key with other input is a conflict that says what differs."""

import pytest

import semel
from tests.world import World


def tasks(app: semel.App) -> semel.Task[..., int]:
    @app.task(retention="1h", dedup_window="2h")
    async def charge(order: str, cents: int, lines: list[dict[str, int]] = []) -> int:  # noqa: B006
        return cents

    return charge


async def test_the_fields_that_differ_are_named(world: World) -> None:
    app = world.app()
    charge = tasks(app)
    first = await app.enqueue(charge, "o-1", 9900, [{"a": 1}], task_id="pay")
    with pytest.raises(semel.KeyConflict) as caught:
        await app.enqueue(charge, "o-1", 12000, [{"a": 2}], task_id="pay")
    error = caught.value
    assert error.differences == {"cents": (9900, 12000), "lines[0].a": (1, 2)}
    assert (error.existing_execution_id, error.status) == (first.id, "pending")
    assert f"key 'pay' already started execution {first.id} with other input" in str(error)
    assert "cents: 9900 -> 12000" in str(error)
    assert "semel explain pay" in str(error)
    assert await world.count() == 1


async def test_a_conflict_is_raised_also_where_duplicates_are_returned_and_after_completion(world: World) -> None:
    app = world.app()
    charge = tasks(app)
    async with world.worker(app):
        first = await app.enqueue(charge, "o-1", 1, task_id="pay")
        await first.result(timeout="60s")
        for duplicate in ("return", "raise"):
            with pytest.raises(semel.KeyConflict) as caught:
                await app.enqueue(charge, "o-1", 2, task_id="pay", on_duplicate=duplicate)
            assert caught.value.status == "completed"


async def test_when_only_the_fingerprint_is_left_it_still_is_a_conflict(world: World) -> None:
    app = world.app()
    charge = tasks(app)
    async with world.worker(app):
        await (await app.enqueue(charge, "o-1", 1, task_id="pay")).result(timeout="60s")
    await world.advance("90m")
    await world.clean(app)
    with pytest.raises(semel.KeyConflict, match="past its retention") as caught:
        await app.enqueue(charge, "o-1", 2, task_id="pay")
    assert caught.value.differences == {}
    assert (await app.enqueue(charge, "o-1", 1, task_id="pay")).duplicate
