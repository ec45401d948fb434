"""Schedules of every second by the real clock: workers die of SIGKILL and stay away, the database hangs for a while."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import semel
from semel.contract.slot_policy import Misfire
from semel.contract.times import instant
from tests.faults.schedule_invariants import Grid, run_faults, slot_faults
from tests.faults.server import fragile_postgres
from tests.faults.site import Site
from tests.world import eventually

pytestmark = pytest.mark.proof

SHOP = """
import os
import semel

app = semel.App(os.environ["SHOP_DATABASE"], config=None)


@app.task
async def note() -> None:
    here = semel.current()
    file = os.open(os.environ["SHOP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{here.key}\\n".encode())
    os.close(file)
"""
KILLS = 5
AWAY = 2.5
"""Seconds without a worker."""
POLICIES = {"skip": {"late", "engine down"}, "catchup": {"over the catch-up limit"}, "compress": {"compressed"}}
"""Why slots did not run that were missed. A call that hangs and is answered in the end is no outage."""


async def put_schedules(app: semel.App, note: Any, seconds: int) -> list[int]:
    """One for each misfire policy, with a slot in each of so many seconds; the slots."""
    begin = datetime.fromtimestamp(datetime.now(UTC).timestamp() // 1 + 5, UTC)
    for misfire in Misfire:
        await app.schedules.put(
            misfire.value, note, every="1s", start_at=begin, end_at=begin + timedelta(seconds=seconds),
            misfire=misfire, overlap="allow_all", max_catchup=2, grace="1s",
        )  # fmt: skip
    return Grid(instant(begin), 1_000_000, seconds).slots()


async def check(sql: Any, slots: list[int]) -> None:
    """Every slot has one fate, as its policy says, and there were slots that nobody could start in time."""
    for id_, reasons in POLICIES.items():
        assert await slot_faults(sql, id_, slots) == []
        told = {reason for (reason,) in await sql(f"select reason from semel_skipped where schedule = '{id_}'")}
        assert told <= reasons
        assert told or id_ != "skip", "nobody was away"
    assert await run_faults(sql) == []


async def all_decided(app: semel.App, slots: list[int]) -> bool:
    found = await app.schedules.list()
    return all(instant(one.cursor) >= slots[-1] and not one.waiting for one in found)


@contextmanager
def worker_process(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """A real worker, which dies of SIGKILL at the end of the block."""
    command = [sys.executable, "-m", "semel", "worker", "outage_shop:app", "--lease", "2s"]
    child = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        child.kill()
        child.wait(10)


@pytest.mark.timeout(200)
async def test_workers_that_are_killed_five_times_start_each_slot_once(site: Site) -> None:
    folder = Path(site.folder)
    (folder / "outage_shop.py").write_text(SHOP, encoding="utf-8")
    ledger = folder / "notes"
    environment = os.environ | {"SHOP_DATABASE": site.url, "SHOP_LEDGER": str(ledger)}
    async with site.app() as app:

        @app.task
        async def note() -> None: ...

        slots = await put_schedules(app, note, seconds=6 * KILLS)
        for at in range(KILLS):
            with worker_process(folder, environment):
                await eventually(partial(goes_on, site, app, slots, await count_runs(site)))
                await asyncio.sleep(0.3 * at)
            await asyncio.sleep(AWAY)
        with worker_process(folder, environment):
            await eventually(partial(all_decided, app, slots))
            await eventually(partial(nothing_left, site), within=120)
    await check(site.sql, slots)
    notes = ledger.read_text(encoding="utf-8").splitlines()
    assert {key for (key,) in await site.sql("select key from semel_run")} == set(notes)


async def count_runs(site: Site) -> int:
    return int((await site.sql("select count(*) from semel_run"))[0][0])


async def goes_on(site: Site, app: semel.App, slots: list[int], before: int) -> bool:
    """Has the new worker begun? Where one takes many seconds to start, there may be no more slots for the last ones."""
    return await count_runs(site) > before or await all_decided(app, slots)


async def nothing_left(site: Site) -> bool:
    left = "select (select count(*) from semel_ready) + (select count(*) from semel_later)"
    return (await site.sql(left))[0][0] == 0


@pytest.mark.timeout(120)
async def test_a_database_that_hangs_and_comes_back_has_each_slot_once() -> None:
    with fragile_postgres() as server:
        server.sql("create database shop")
        url = server.url("shop")
        async with semel.App(url, config=None, auto_migrate=True) as app:
            seen: list[str] = []

            @app.task
            async def note() -> None:
                seen.append(str(semel.current().key))

            slots = await put_schedules(app, note, seconds=14)
            async with app.worker(), app.worker():
                await eventually(lambda: len(seen) > 3)
                server.freeze()
                await asyncio.sleep(5)
                server.thaw()
                await eventually(partial(all_decided, app, slots))

            async def sql(text: str) -> list[tuple[Any, ...]]:
                connection = await asyncpg.connect(url)
                try:
                    return [tuple(row) for row in await connection.fetch(text)]
                finally:
                    await connection.close()

            await check(sql, slots)
    assert len(seen) == len(set(seen))
