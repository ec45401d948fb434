"""A process that is killed: what it committed runs, what it did not never was. With every kind of connection."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.conftest import HERE
from tests.transactional.conftest import ORDERS
from tests.transactional.kinds import Caller
from tests.transactional.test_commit_and_start import shop
from tests.transactional.test_verbs import SOME
from tests.world import SOON, World, eventually


@pytest.mark.slow
@SOME
async def test_what_was_committed_runs_and_the_rest_never_was(world: World, kind: tuple[str, type[Caller]]) -> None:
    await kill_and_look(world, kind)


@pytest.mark.proof
async def test_the_same_with_every_kind(world: World, kind: tuple[str, type[Caller]]) -> None:
    await kill_and_look(world, kind)


async def kill_and_look(world: World, kind: tuple[str, type[Caller]]) -> None:
    app, _ = shop(world)
    await app.migrate()
    await world.sql(ORDERS)
    command = [sys.executable, "-m", "tests.transactional.doomed_process", world.url, kind[1].__name__]
    doomed = await asyncio.create_subprocess_exec(
        *command, cwd=HERE.parent, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(HERE.parent)}
    )
    assert doomed.stdout is not None
    try:
        assert await asyncio.wait_for(doomed.stdout.readline(), SOON) == b"ready\n"
    finally:
        doomed.kill()
        await doomed.wait()
    async with world.worker(app):
        first = await eventually(lambda: app.find("order-1"))
        assert await first.result(SOON) == "shipped 1"
    assert await app.find("order-2") is None
    assert [tuple(row) for row in await world.sql("select id from orders")] == [(1,)]
