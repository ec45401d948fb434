"""A process that forks after it used the app, as web servers do: the child opens everything anew."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.world import World

PROGRAM = """
import os, sys
import semel

app = semel.App(sys.argv[1], config=None, auto_migrate=True)

@app.task(name="charge")
def charge(cents: int) -> int:
    return cents

app.sync.enqueue(charge, 1, task_id="parent")
child = os.fork()
if child == 0:
    app.sync.enqueue(charge, 2, task_id="child")
    assert app.sync.find("parent") is not None
    app.sync.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert app.sync.find("child") is not None
app.sync.enqueue(charge, 3, task_id="parent-again")
app.sync.close()
sys.stdout.write("both worked")
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.slow
async def test_the_sync_face_works_in_parent_and_child(world: World, tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, world.url, cwd=tmp_path, stdout=PIPE, stderr=PIPE
    )
    async with asyncio.timeout(100):
        said, wrong = await program.communicate()
    assert said == b"both worked", wrong.decode()
