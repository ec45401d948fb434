"""A disk that is full costs nothing that was accepted, and what comes after it is made room is accepted again."""

from pathlib import Path

import apsw
import pytest

import semel
from semel.engines.journal.engine import JournalEngine
from semel.engines.sqlite.store import SqliteStore
from tests.world import World


def _disk(app: semel.App) -> apsw.Connection:
    """The connection that writes: its limit of pages stands for the end of the disk."""
    engine = app.engine
    assert isinstance(engine, JournalEngine)
    store = engine._store
    assert isinstance(store, SqliteStore)
    assert store._writer is not None
    return store._writer._db


async def test_what_was_accepted_stays_and_what_was_not_leaves_no_trace(tmp_path: Path) -> None:
    world = World("sqlite", f"sqlite:///{tmp_path / 'full.db'}")
    app = world.app()

    @app.task
    async def keep(text: str) -> int:
        return len(text)

    accepted = [await app.enqueue(keep, "first", task_id="first")]
    disk = _disk(app)
    pages = int(disk.pragma("page_count"))
    disk.pragma("max_page_count", pages + 40)

    async def fill() -> None:
        for number in range(1000):
            accepted.append(await app.enqueue(keep, "x" * 4000, task_id=f"n-{number}"))  # noqa: PERF401

    with pytest.raises(semel.EngineUnavailable, match="is full: nothing was written"):
        await fill()
    refused = f"n-{len(accepted) - 1}"
    assert 1 < len(accepted) < 1000
    assert await world.count() == len(accepted)
    assert await app.find(refused) is None

    disk.pragma("max_page_count", pages + 4000)
    accepted.append(await app.enqueue(keep, "x" * 4000, task_id=refused))
    async with world.worker(app):
        assert [await handle.result(timeout="20s") for handle in accepted[1:]] == [4000] * (len(accepted) - 1)
    assert disk.pragma("integrity_check") == "ok"
    await world.close()


async def test_a_worker_waits_for_room_and_then_writes_what_it_has(tmp_path: Path) -> None:
    world = World("sqlite", f"sqlite:///{tmp_path / 'full.db'}")
    app = world.app()
    runs: list[int] = []

    @app.task(retry=1)
    async def grow(number: int) -> str:
        runs.append(number)
        if len(runs) == 1:
            disk.pragma("max_page_count", int(disk.pragma("page_count")))
        return "y" * 200_000

    handle = await app.enqueue(grow, 1, task_id="grow")
    disk = _disk(app)
    async with world.worker(app):
        with pytest.raises(semel.ResultPending):
            await handle.result(timeout="1s")
        disk.pragma("max_page_count", 100_000)
        assert len(await handle.result(timeout="20s")) == 200_000
    assert runs == [1]
    await world.close()
