"""A process that is killed between a start and its note of it starts nothing twice when it sends the same again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

import semel
from semel.engine.requests import request
from tests.temporal_world import TemporalWorld
from tests.world import SOON, eventually

pytestmark = pytest.mark.slow

RELAY = """
import asyncio, os, signal, sys
from pathlib import Path
import semel
from semel.engine.start_request import StartRequest

async def relay(url, row, note, killed):
    app = semel.App(url, config=None)
    admission = await app.engine.start(StartRequest.from_bytes(Path(row).read_bytes()))
    if killed == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    Path(note).write_text(admission.id)
    await app.close()
    os._exit(0)  # the SDK may crash while an interpreter ends that has just used it

asyncio.run(relay(*sys.argv[1:]))
"""


async def relay(cluster: TemporalWorld, folder: Path, killed: bool) -> str | None:
    note = folder / "note"
    args = [cluster.url, str(folder / "row.json"), str(note), "killed" if killed else "whole"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", RELAY, *args, env=env)
    assert await process.wait() == (-signal.SIGKILL if killed else 0)
    return note.read_text() if note.exists() else None


@pytest.mark.parametrize("before", [0, 1])
async def test_killed_between_start_and_note(cluster: TemporalWorld, tmp_path: Path, before: int) -> None:
    app = cluster.app()

    @app.task
    async def charge(order: str) -> str:
        return order

    async with app.worker():
        for _ in range(before):
            await (await app.enqueue(charge, "o-1", task_id="pay")).result(timeout=SOON)
        start = request(app.settings, charge, ("o-1",), {}, task_id="pay", reuse="always")
        (tmp_path / "row.json").write_bytes(start.to_bytes())
        assert await relay(cluster, tmp_path, killed=True) is None

        async def done() -> semel.Handle[str] | None:
            found = await app.find("pay")
            explained = (await app.explain("pay")).executions
            ended = len(explained) == before + 1 and explained[0].status is semel.Status.COMPLETED
            return found if ended else None

        found: semel.Handle[str] = await eventually(done)
        assert await relay(cluster, tmp_path, killed=True) is None
        assert await relay(cluster, tmp_path, killed=False) == found.id
    assert await cluster.count() == before + 1
