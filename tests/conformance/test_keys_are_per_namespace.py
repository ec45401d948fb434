"""Namespaces do not see each other."""

import pytest

import semel
from tests.world import World


def number(app: semel.App) -> semel.Task[..., str]:
    @app.task
    async def where() -> str:
        return semel.current().namespace

    return where


async def test_the_same_key_runs_once_in_each_namespace(world: World) -> None:
    left, right = world.app(namespace="left"), world.app(namespace="right")
    one = await left.enqueue(number(left), task_id="k")
    two = await right.enqueue(number(right), task_id="k")
    assert (one.duplicate, two.duplicate, one.id != two.id) == (False, False, True)
    async with world.worker(left), world.worker(right):
        assert await one.result(timeout="20s") == left.settings.namespace
        assert await two.result(timeout="20s") == right.settings.namespace


async def test_a_worker_serves_its_own_namespace_only(world: World) -> None:
    left, right = world.app(namespace="left"), world.app(namespace="right")
    number(right)
    waits = await left.enqueue(number(left))
    runs = await right.enqueue(number(right))
    async with world.worker(right):
        assert await runs.result(timeout="20s") == right.settings.namespace
        assert await waits.status() == "pending"


async def test_nothing_of_another_namespace_is_shown(world: World) -> None:
    left, right = world.app(namespace="left"), world.app(namespace="right")
    one = await left.enqueue(number(left), task_id="k")
    left.configure_queue("mail", rate_limit="1/min")
    await left.queues()
    assert await right.find("k") is None
    assert await right.list() == []
    assert await right.queues() == []
    assert "Nothing is known" in str(await right.explain("k"))
    for ask in (right.get(one.id), right.get(one.id[:20]), right.redrive(one.id)):
        with pytest.raises(semel.NotFound):
            await ask
