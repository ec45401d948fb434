"""An observer hears of every verb, how long it took and how it ended."""

import pytest

import semel
from tests.world import World


class Ears(semel.Observer):
    def __init__(self) -> None:
        self.heard: list[tuple[str, float, BaseException | None]] = []

    def observe(self, verb: str, seconds: float, error: BaseException | None) -> None:
        self.heard.append((verb, seconds, error))


async def test_every_verb_is_told(world: World) -> None:
    ears = Ears()
    app = world.app(observer=ears)

    @app.task
    async def work() -> str:
        return "done"

    async with world.worker(app):
        handle = await app.enqueue(work, task_id="k")
        assert await handle.result(timeout="60s") == "done"
    await app.find("k")
    await app.list()
    await app.explain("k", kind="task")
    verbs = [verb for verb, _, _ in ears.heard]
    assert verbs == ["start", "outcome", "find", "executions", "explain"]
    assert all(seconds >= 0 and error is None for _, seconds, error in ears.heard)


async def test_an_error_is_told_and_still_raised(postgres_world: World) -> None:
    ears = Ears()
    await postgres_world.sql("drop table semel_migration")
    app = postgres_world.app(observer=ears)
    with pytest.raises(semel.MigrationNeeded) as caught:
        await app.list()
    ((verb, _, error),) = ears.heard
    assert (verb, error) == ("executions", caught.value)
