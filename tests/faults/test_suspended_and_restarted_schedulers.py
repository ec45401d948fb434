"""Faults 20 and 21: a worker that was suspended for hours obeys the misfire policies, and restarts lose no slot."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import semel
from semel.contract.times import instant
from tests.faults.schedule_invariants import Grid, run_faults, slot_faults
from tests.faults.schedule_shop import HOUR
from tests.faults.server import await_stop
from tests.faults.site import Site
from tests.world import eventually

SHOP = """
import os
import time
from pathlib import Path

import semel

skew = Path(os.environ["SHOP_SKEW"])
app = semel.App(os.environ["SHOP_DATABASE"], config=None, clock=lambda: time.time() + float(skew.read_text()))


@app.task
async def note() -> None:
    here = semel.current()
    file = os.open(os.environ["SHOP_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{here.key}\\n".encode())
    os.close(file)
"""
SLOTS = 8
WHOLE_HOURS = 5
"""Slots of each schedule that come and go while its worker is suspended."""


@contextlib.contextmanager
def worker_process(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "semel", "worker", "suspended_shop:app", "--lease", "2s"]
    child = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait(10)


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_a_worker_that_was_suspended_for_hours_starts_no_burst(site: Site, tmp_path: Path) -> None:
    (tmp_path / "suspended_shop.py").write_text(SHOP, encoding="utf-8")
    ledger, skew = tmp_path / "notes", tmp_path / "skew"
    skew.write_text("0", encoding="utf-8")
    places = {"SHOP_DATABASE": site.url, "SHOP_LEDGER": str(ledger), "SHOP_SKEW": str(skew)}
    async with site.app() as app:

        @app.task
        async def note() -> None: ...

        begin = datetime.fromtimestamp(site.time() // 1 + 5, UTC)
        end = begin + timedelta(hours=SLOTS)
        for misfire in ("skip", "catchup", "compress"):
            options: dict[str, Any] = {"misfire": misfire, "max_catchup": 2, "start_at": begin, "end_at": end}
            await app.schedules.put(misfire, note, every="1h", **options)
        await app.schedules.put("pulse", note, every="1s", start_at=begin)  # so that somebody looks each second

        async def ran(id: str, *numbers: int) -> bool:
            """Have exactly these slots run, in this order?"""
            lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
            keys = [f"activity-{id}:{(begin + timedelta(hours=number)).isoformat()}" for number in numbers]
            found = [line for line in lines if line.startswith(f"activity-{id}:")]
            assert found == keys[: len(found)], "no burst, and nothing out of order"
            return found == keys

        with worker_process(tmp_path, os.environ | places) as worker:
            for misfire in ("skip", "catchup", "compress"):
                await eventually(partial(ran, misfire, 0))
            os.kill(worker.pid, signal.SIGSTOP)
            await_stop(worker.pid)
            hours = WHOLE_HOURS + 0.75
            await site.advance(hours * HOUR)
            skew.write_text(str(hours * HOUR), encoding="utf-8")
            os.kill(worker.pid, signal.SIGCONT)
            await eventually(lambda: ran("catchup", 0, 4, 5), within=90)
            await eventually(lambda: ran("compress", 0, 5))
            assert await ran("skip", 0)
    grid = Grid(instant(begin), round(HOUR * 1e6), SLOTS).slots()
    for misfire, reason in (("skip", "late"), ("catchup", "over the catch-up limit"), ("compress", "compressed")):
        assert await slot_faults(site.sql, misfire, grid, ended=False) == []
        told = await site.sql(f"select reason, sum(slots) from semel_skipped where schedule = '{misfire}' group by 1")
        missed = {"skip": 5, "catchup": 3, "compress": 4}[misfire]
        assert told in ([(reason, missed)], [("engine down", missed)]), "a look that was under way takes it for that"
    assert await run_faults(site.sql) == []


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("site", ["sqlite"], indirect=True)
async def test_a_weekly_schedule_fires_although_everything_restarts_each_hour(site: Site) -> None:
    """Nothing about a schedule is in the memory of a process: each hour another one looks, and is gone."""

    def new_process() -> tuple[semel.App, Any]:
        app = site.app()

        @app.task(name="report")
        async def report() -> None: ...

        return app, report

    first = datetime.fromtimestamp(site.time() // HOUR * HOUR, UTC) + timedelta(days=7)
    app, report = new_process()
    async with app:
        await app.schedules.put("weekly", report, cron=f"0 {first.hour} * * {first:%a}", grace="90m")
    for _ in range(7 * 24 + 2):
        app, _ = new_process()
        async with app:
            schedules: Any = await app.engine.schedules()
            await schedules.inner.tick()
        await site.advance(HOUR)
    async with site.app() as app:
        assert [run.scheduled_for for run in await app.schedules.runs("weekly")] == [first]
        assert await app.schedules.skipped("weekly") == []
