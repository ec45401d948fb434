"""A disk that is full costs nothing that was accepted, and what comes after it is made room is accepted again."""

from pathlib import Path
from typing import Any

import pytest

import semel
from semel.engines.journal.engine import JournalEngine
from semel.engines.journal.script import ConnectionRole, Raw, Script, procedure
from tests.world import World, eventually, unbounded


class Disk:
    """A limit of pages stands for the end of the disk. It is set where all is written, by the thread that writes."""

    def __init__(self, app: semel.App) -> None:
        engine = unbounded(app.engine)
        assert isinstance(engine, JournalEngine)
        self._store = engine._store

    async def pages(self) -> int:
        return int(await self._store.run(ask, "page_count"))

    async def end_at(self, pages: int) -> None:
        await self._store.run(ask, f"max_page_count = {pages}")

    async def is_sound(self) -> bool:
        return await self._store.run(ask, "integrity_check") == "ok"


@procedure(ConnectionRole.CONTROL, atomic=True)
def ask(pragma: str) -> Script[Any]:
    return (yield Raw("pragma", f"pragma {pragma}"))[0][0]


async def test_what_was_accepted_stays_and_what_was_not_leaves_no_trace(tmp_path: Path) -> None:
    world = World("sqlite", f"sqlite:///{tmp_path / 'full.db'}")
    app = world.app()

    @app.task
    async def keep(text: str) -> int:
        return len(text)

    accepted = [await app.enqueue(keep, "first", task_id="first")]
    disk = Disk(app)
    pages = await disk.pages()
    await disk.end_at(pages + 40)

    async def fill() -> None:
        for number in range(1000):
            accepted.append(await app.enqueue(keep, "x" * 4000, task_id=f"n-{number}"))  # noqa: PERF401

    with pytest.raises(semel.EngineUnavailable, match="is full: nothing was written"):
        await fill()
    refused = f"n-{len(accepted) - 1}"
    assert 1 < len(accepted) < 1000
    assert await world.count() == len(accepted)
    assert await app.find(refused) is None

    await disk.end_at(pages + 4000)
    accepted.append(await app.enqueue(keep, "x" * 4000, task_id=refused))
    async with world.worker(app):
        assert [await handle.result(timeout="60s") for handle in accepted[1:]] == [4000] * (len(accepted) - 1)
    assert await disk.is_sound()
    await world.close()


async def test_a_worker_waits_for_room_and_then_writes_what_it_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World("sqlite", f"sqlite:///{tmp_path / 'full.db'}")
    app = world.app()
    runs: list[int] = []

    @app.task(retry=1)
    async def grow(number: int) -> str:
        runs.append(number)
        if len(runs) == 1:
            await disk.end_at(await disk.pages())
        return "y" * 200_000

    handle = await app.enqueue(grow, 1, task_id="grow")
    disk = Disk(app)
    async with world.worker(app):
        await eventually(lambda: "cannot write results, trying again" in caplog.text)
        with pytest.raises(semel.ResultPending):
            await handle.result(timeout=0)
        await disk.end_at(100_000)
        assert len(await handle.result(timeout="60s")) == 200_000
    assert runs == [1]
    await world.close()
