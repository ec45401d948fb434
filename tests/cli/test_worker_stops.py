"""The first SIGTERM drains, the second stops at once; nothing is lost either way, and the process always ends."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

import semel
from tests.cli.shell import ask_to_stop, await_line, process, shop, until_status, worker
from tests.world import World, eventually

pytestmark = pytest.mark.slow


async def enqueue(app: semel.App, name: str, argument: float | str) -> semel.Handle[object]:
    """Ask for a task that only the worker process has."""
    if isinstance(argument, str):

        @app.task(name=name)
        def told(until: str) -> str: ...

        return await app.enqueue(told, argument, task_id="one")

    @app.task(name=name)
    def timed(seconds: float) -> str: ...

    return await app.enqueue(timed, argument, task_id="one")


async def ended(running: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = await asyncio.to_thread(running.communicate, timeout=60)
    return running.returncode, err


async def test_the_first_lets_running_tasks_finish(world: World, tmp_path: Path) -> None:
    app = world.app()
    with worker(tmp_path, f"{shop(world, tmp_path)}:app") as running:
        handle = await enqueue(app, "doze", str(tmp_path / "enough"))
        await eventually((tmp_path / "enough.begun").exists)  # a claim alone is not yet in the hands of the process
        ask_to_stop(running)
        line = await asyncio.to_thread(await_line, running, "waiting for")
        assert "doze one (attempt 1)" in line
        (tmp_path / "enough").touch()
        code, err = await ended(running)
    assert (code, "stopped" in err) == (0, True)
    assert await handle.result(timeout=0) == "rested"
    assert list(await app.workers()) == []


async def test_a_task_that_outlives_the_grace_is_given_back(sqlite_world: World, tmp_path: Path) -> None:
    app = sqlite_world.app()
    with worker(tmp_path, f"{shop(sqlite_world, tmp_path)}:app", "--grace", "100ms") as running:
        handle = await enqueue(app, "nap", 60)
        await until_status(app, handle.id, "running")
        ask_to_stop(running)
        assert (await ended(running))[0] == 0
    execution = await handle.describe()
    assert (execution.status, execution.attempt) == ("pending", 0)


async def test_the_second_stops_at_once(world: World, tmp_path: Path) -> None:
    app = world.app()
    with worker(tmp_path, f"{shop(world, tmp_path)}:app") as running:
        handle = await enqueue(app, "doze", str(tmp_path / "never"))
        await eventually((tmp_path / "never.begun").exists)
        ask_to_stop(running)
        await asyncio.to_thread(await_line, running, "waiting for")
        ask_to_stop(running)
        code, err = await ended(running)
    assert (code, "given back: doze one" in err) == (0, True)
    execution = await handle.describe()
    assert (execution.status, execution.attempt) == ("pending", 0)


async def test_a_sync_task_that_hangs_does_not_keep_the_process(sqlite_world: World, tmp_path: Path) -> None:
    app = sqlite_world.app()
    with worker(tmp_path, f"{shop(sqlite_world, tmp_path)}:app", "--grace", "0") as running:
        handle = await enqueue(app, "hang", 60)
        await until_status(app, handle.id, "running")
        ask_to_stop(running)
        code, err = await ended(running)
    assert (code, "does not return" in err) == (0, True)
    assert await handle.status() == "pending"


async def test_a_worker_serves_only_its_queues(sqlite_world: World, tmp_path: Path) -> None:
    app = sqlite_world.app()
    with worker(tmp_path, f"{shop(sqlite_world, tmp_path)}:app", "--queues", "payments, other"):
        assert [w.queues for w in await app.workers()] == ["payments,other"]


async def _workers(app: semel.App, count: int) -> bool:
    return len(await app.workers()) == count


@pytest.mark.slow
async def test_a_child_that_dies_is_replaced(world: World, tmp_path: Path) -> None:
    app = world.app()

    @app.task(name="die", retry=1)
    def die() -> None: ...

    @app.task(name="charge", queue="payments")
    def charge(order: str) -> dict[str, object]: ...

    options = ("--processes", "2", "--lease", "1s")
    with worker(tmp_path, f"{shop(world, tmp_path)}:app", *options) as running:
        doomed = await app.enqueue(die)
        line = await asyncio.to_thread(await_line, running, "died")
        assert "exit code 9" in line
        with pytest.raises(semel.ExecutionFailed, match="the worker died"):
            await doomed.result(timeout="60s")
        await eventually(lambda: _workers(app, 2))
        handle = await app.enqueue(charge, "o-1")
        assert await handle.result(timeout="60s") == {"order": "o-1", "cents": 100}
        ask_to_stop(running)
        code, err = await ended(running)
    assert (code, "all worker processes have ended" in err) == (0, True)
    assert list(await app.workers()) == []


@pytest.mark.slow
async def test_children_end_with_a_parent_that_is_killed(sqlite_world: World, tmp_path: Path) -> None:
    app = sqlite_world.app()
    with worker(tmp_path, f"{shop(sqlite_world, tmp_path)}:app", "--processes", "2") as running:
        await asyncio.to_thread(await_line, running, "ready")
        assert len(await app.workers()) == 2
        running.kill()
        await ended(running)
    assert list(await app.workers()) == []


@pytest.mark.slow
async def test_children_that_cannot_start_end_the_parent(tmp_path: Path) -> None:
    running = process("worker", "nothing:app", "--processes", "2", cwd=tmp_path)
    code, err = await ended(running)
    assert (code, "no module 'nothing'" in err) == (2, True)
