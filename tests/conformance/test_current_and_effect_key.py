"""A running task knows itself, and its effect keys stay the same until it has completed."""

import pytest

import semel
from tests.world import World, ended


async def test_it_knows_itself(world: World) -> None:
    app = world.app(namespace="shop")

    @app.task(queue="q", retry=semel.Retry(max_attempts=4, initial=0))
    async def who(n: int) -> list[object]:
        me = semel.current()
        if me.attempt < 2:
            raise ValueError
        return [me.id, me.key, me.name, me.kind, me.namespace, me.queue, me.attempt, me.max_attempts, me.cancelled]

    async with world.worker(app):
        handle = await app.enqueue(who, 1, task_id="k")
        space = app.settings.namespace
        assert await handle.result(timeout="60s") == [handle.id, "k", "who", "task", space, "q", 2, 4, False]


class Provider:
    """Records the key of every call, as a payment provider would see it."""

    def __init__(self, app: semel.App) -> None:
        self.keys: list[str] = []
        self.failing = 0

        @app.task(retry=semel.Retry(max_attempts=2, initial=0))
        async def charge() -> None:
            assert semel.effect_key("charge") == semel.current().effect_key("charge")
            self.keys.append(semel.effect_key("charge"))
            if self.failing:
                self.failing -= 1
                raise ValueError

        self.charge = charge


async def test_the_key_is_the_same_over_attempts_and_after_a_failure(world: World) -> None:
    app = world.app()
    provider = Provider(app)
    provider.failing = 3
    async with world.worker(app):
        assert await ended(await app.enqueue(provider.charge, task_id="o-1")) == "failed"
        await (await app.enqueue(provider.charge, task_id="o-1")).result(timeout="60s")
    assert provider.keys == [f"semel1:{app.settings.namespace}:task:o-1:charge"] * 4


async def test_a_redriven_one_keeps_its_key(world: World) -> None:
    app = world.app()
    provider = Provider(app)
    provider.failing = 2
    async with world.worker(app):
        first = await app.enqueue(provider.charge, task_id="o-1")
        assert await ended(first) == "failed"
        await (await app.redrive(first.id)).result(timeout="60s")
    assert len(set(provider.keys)) == 1


async def test_a_deliberate_rerun_after_completion_is_a_new_effect(world: World) -> None:
    app = world.app()
    provider = Provider(app)
    async with world.worker(app):
        for _ in range(3):
            handle = await app.enqueue(provider.charge, task_id="o-1", reuse="always")
            await handle.result(timeout="60s")
    base = f"semel1:{app.settings.namespace}:task:o-1:charge"
    assert provider.keys == [base, f"{base}#2", f"{base}#3"]
    assert (await handle.describe()).generation == 2


async def test_without_a_key_each_execution_has_its_own(world: World) -> None:
    app = world.app()
    provider = Provider(app)
    async with world.worker(app):
        handles = [await app.enqueue(provider.charge) for _ in range(2)]
        for handle in handles:
            await handle.result(timeout="60s")
    assert set(provider.keys) == {f"semel1:{app.settings.namespace}:task-id:{handle.id}:charge" for handle in handles}


@pytest.mark.parametrize("ask", [semel.current, lambda: semel.effect_key("x")])
def test_outside_of_a_task_there_is_nothing_to_know(ask: object) -> None:
    with pytest.raises(semel.OutsideTask, match="no task runs here"):
        ask()  # type: ignore[operator]
