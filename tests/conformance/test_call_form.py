"""enqueue(charge.call(…)): the same request, with arguments that a type checker sees."""

import pytest

import semel
from tests.world import World


async def test_both_forms_are_the_same_request(world: World) -> None:
    app = world.app()

    @app.task
    async def charge(order: str, cents: int = 5) -> int:
        return cents

    first = await app.enqueue(charge.call("o-1"), task_id="k")
    second = await app.enqueue(charge, order="o-1", cents=5, task_id="k")
    assert (second.id, second.duplicate) == (first.id, True)
    async with world.worker(app):
        assert await first.result(timeout="60s") == 5


async def test_what_does_not_fit_is_a_type_error_at_the_call(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.task
    async def charge(order: str) -> None: ...

    with pytest.raises(TypeError):
        charge.call()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        await app.enqueue(charge)
    with pytest.raises(TypeError, match="already carries its arguments"):
        await app.enqueue(charge.call("o-1"), "o-2")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="unexpected keyword argument 'taskid'"):
        await app.enqueue(charge, "o-1", taskid="k")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"enqueue_many\(\) has no option 'task_id'"):
        await app.enqueue_many([charge.call("o-1")], task_id="k")  # type: ignore[call-arg]


async def test_what_is_no_task_is_refused(sqlite_world: World) -> None:
    app = sqlite_world.app()

    async def plain() -> None: ...

    with pytest.raises(semel.InvalidValue, match=r"is not a task: decorate it with @app\.task"):
        await app.enqueue(plain)  # type: ignore[call-overload]


async def test_a_workflow_in_the_place_of_a_task_is_named_and_the_other_way_round(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.task
    async def charge() -> None: ...

    @app.workflow
    async def ship(ctx: semel.Context) -> None: ...

    for one in (ship, ship.call()):
        with pytest.raises(semel.InvalidValue, match="is a workflow: start it with start_workflow"):
            await app.enqueue(one)  # type: ignore[call-overload]
    for two in (charge, charge.call()):
        with pytest.raises(semel.InvalidValue, match="is a task: ask for it with enqueue"):
            await app.start_workflow(two, workflow_id="w")  # type: ignore[call-overload]
