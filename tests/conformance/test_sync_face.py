"""app.sync: the same verbs without await, from any thread."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import semel
from tests.world import World


async def test_every_verb_from_a_thread(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def double(n: int) -> int:
        if n < 0:
            raise ValueError("negative")
        return 2 * n

    def script() -> None:
        face = app.sync
        handle = face.enqueue(double, 21, task_id="k")
        assert handle.result(timeout="60s") == 42
        assert (handle.status(), handle.cancel(), handle.describe().attempt) == ("completed", "completed", 1)
        again = face.enqueue(double.call(21), task_id="k")
        assert (again.duplicate, again.id, again.key, again.name) == (True, handle.id, "k", "double")
        assert [one.result(timeout="60s") for one in face.enqueue_many([double.call(1), double.call(2)])] == [2, 4]
        found = face.find("k")
        assert found is not None
        assert (found.id, face.get(handle.id).id, face.find("nothing")) == (handle.id, handle.id, None)
        assert len(face.list(status="completed")) == 3
        assert "1 duplicate did not run" in str(face.explain("k"))
        failed = face.enqueue(double, -1)
        with pytest.raises(semel.ExecutionFailed):
            failed.result(timeout="60s")
        assert face.redrive(failed.id).id != failed.id
        with pytest.raises(semel.KeyConflict):
            face.enqueue(double, 22, task_id="k")
        assert repr(handle).startswith("<SyncHandle 'double'")

    async with world.worker(app):
        try:
            await asyncio.to_thread(script)
        finally:
            await asyncio.to_thread(app.sync.close)


async def test_workflows_from_a_thread(world: World) -> None:
    app = world.app()

    @app.workflow
    async def approval(ctx: semel.Context, order: str) -> str:
        ctx.publish("state", "asked")
        ctx.search_attributes["order"] = order
        return str(await ctx.wait_signal("answer"))

    def script() -> None:
        face = app.sync
        handle = face.start_workflow(approval, "o-1", workflow_id="o-1")
        assert face.start_workflow(approval.call("o-1"), workflow_id="o-1").duplicate
        handle.signal("answer", "yes", dedup_key="m-1")
        assert handle.result(timeout="60s") == "yes"
        assert (handle.published("state"), handle.attributes()) == ("asked", {"order": "o-1"})
        assert "signalled" in [event.what for event in handle.history()]
        found = face.find("o-1", kind="workflow")
        assert found is not None
        assert (found.id, face.find("o-1", kind="task")) == (handle.id, None)
        assert "admitted once" in str(face.explain("o-1", kind="workflow"))
        other = face.start_workflow(approval, "o-2", workflow_id="o-2")
        assert other.terminate("not needed") == "cancelled"
        with pytest.raises(semel.WorkflowEnded):
            other.signal("answer", "no")

    async with world.worker(app):
        try:
            await asyncio.to_thread(script)
        finally:
            await asyncio.to_thread(app.sync.close)


async def test_many_threads_one_execution(world: World) -> None:
    app, runs = world.app(), []

    @app.task
    async def charge() -> str:
        runs.append(1)
        return "charged"

    def ask(_: Any) -> tuple[str, bool]:
        handle = app.sync.enqueue(charge, task_id="k")
        return handle.result(timeout="60s"), handle.duplicate

    async with world.worker(app):
        with ThreadPoolExecutor(8) as threads:
            loop = asyncio.get_running_loop()
            answers = await asyncio.gather(*(loop.run_in_executor(threads, ask, n) for n in range(40)))
        await asyncio.to_thread(app.sync.close)
    assert runs == [1]
    assert sorted(answers) == [("charged", False), *[("charged", True)] * 39]


def test_a_script_without_a_loop(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.task
    def work() -> None: ...

    handle = app.sync.enqueue(work)
    assert handle.status() == "pending"
    assert handle.cancel() == "cancelled"
    app.sync.close()
    app.sync.close()
    assert app.sync.get(handle.id).status() == "cancelled"
    app.sync.close()
