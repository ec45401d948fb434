"""Namespaces do not see each other."""

import pytest

import semel
from tests.world import World, waits


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
        assert await one.result(timeout="60s") == left.settings.namespace
        assert await two.result(timeout="60s") == right.settings.namespace


async def test_a_worker_serves_its_own_namespace_only(world: World) -> None:
    left, right = world.app(namespace="left"), world.app(namespace="right")
    number(right)
    waits = await left.enqueue(number(left))
    runs = await right.enqueue(number(right))
    async with world.worker(right):
        assert await runs.result(timeout="60s") == right.settings.namespace
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


async def test_a_handle_reaches_nothing_of_another_namespace(world: World) -> None:
    left, right = world.app(namespace="left"), world.app(namespace="right")

    @left.workflow
    async def flow(ctx: semel.Context) -> None:
        ctx.publish("state", "asked")
        ctx.search_attributes["scope"] = "eu"
        await ctx.wait_signal("go")

    async with world.worker(left):
        handle = await waits(await left.start_workflow(flow, workflow_id="k"))
        foreign = semel.Handle[None](right, handle.id, "flow", "k", duplicate=False)
        for ask in (
            foreign.describe, foreign.status, foreign.cancel, foreign.terminate, foreign.attributes, foreign.history,
            foreign.export, lambda: foreign.published("state"), lambda: foreign.published("nothing"),
            lambda: foreign.signal("go"), lambda: foreign.reset("row:0"),
        ):  # fmt: skip
            with pytest.raises(semel.NotFound):
                await ask()
        assert (await handle.published("state"), await handle.attributes()) == ("asked", {"scope": "eu"})
        await handle.signal("go")
        await handle.result(timeout="60s")
