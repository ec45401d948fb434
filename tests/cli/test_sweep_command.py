"""`semel sweep`: what it would do, what it does here, and what a worker does when it is asked to."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import semel
from tests.cli.shell import semel as run
from tests.world import World, eventually

SHOP = """
import sqlite3
import semel
app = semel.App({url!r}, config=None)

@app.task
async def activate(id: int) -> str:
    return f"tenant {{id}}"

@app.sweeper("stuck-tenants", older_than="5m")
def stuck_tenants(sweep: semel.Sweep):
    for id in range(3):
        yield semel.Stuck(f"tenant-{{id}}", activate, id)

@app.sweeper("broken")
def broken(sweep: semel.Sweep):
    raise ConnectionError("the business database is gone")
"""
_numbers = iter(range(1000))


@pytest.fixture
def shop(sqlite_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"swept_{os.getpid()}_{next(_numbers)}"
    (tmp_path / f"{name}.py").write_text(SHOP.format(url=sqlite_world.url))
    assert run("migrate", "--url", sqlite_world.url).code == 0
    return f"{name}:app"


def test_a_dry_run_lists_rows_and_starts_nothing(shop: str, sqlite_world: World) -> None:
    shown = run("sweep", "stuck-tenants", shop, "--dry-run")
    assert shown.code == 0, shown.err
    assert "tenant-2" in shown.out
    assert "it was never started" in shown.out
    assert "3 stuck: 3 started" in shown.out
    assert "this was a dry run" in shown.out
    assert run("list", "--url", sqlite_world.url, "--json").data == []
    data = run("sweep", "stuck-tenants", shop, "--dry-run", "--json").data
    assert (data["stuck"], data["started"], data["dry_run"], len(data["rows"])) == (3, 3, True, 3)


def test_it_runs_here_and_again_starts_nothing(shop: str) -> None:
    assert "3 stuck: 3 started" in run("sweep", "stuck-tenants", shop).out
    again = run("sweep", "stuck-tenants", shop)
    assert (again.code, "3 stuck: 3 under way already" in again.out) == (0, True)


async def test_what_completed_is_an_exit_code(shop: str, sqlite_world: World) -> None:
    assert (await asyncio.to_thread(run, "sweep", "stuck-tenants", shop)).code == 0
    app = sqlite_world.app()

    @app.task
    async def activate(id: int) -> str:
        return f"tenant {id}"

    async with app.worker():
        for id in range(3):
            handle = await app.find(f"tenant-{id}")
            assert handle is not None
            await handle.result("60s")
    again = await asyncio.to_thread(run, "sweep", "stuck-tenants", shop)
    assert again.code == 1
    assert "3 completed although stuck" in again.out
    assert "tenant-1" in again.out


def test_what_the_function_raises_is_shown(shop: str) -> None:
    failed = run("sweep", "broken", shop)
    assert failed.code == 1
    assert "ConnectionError: the business database is gone" in failed.err
    assert "in broken" in failed.err


def test_a_wrong_name_and_a_missing_app_are_told(shop: str, sqlite_world: World) -> None:
    wrong = run("sweep", "stuck", shop)
    assert (wrong.code, "There are: stuck-tenants, broken" in wrong.err) == (2, True)
    none = run("sweep", "stuck-tenants", "--url", sqlite_world.url)
    assert (none.code, "no schedule 'stuck-tenants'" in none.err) == (3, True)
    dry = run("sweep", "stuck-tenants", "--dry-run", "--url", sqlite_world.url)
    assert (dry.code, "give your app" in dry.err) == (2, True)


async def test_a_worker_runs_it_and_the_schedule_shows_its_report(shop: str, sqlite_world: World) -> None:
    url = sqlite_world.url
    assert (await asyncio.to_thread(run, "apply", shop, "--yes")).code == 0
    shown = await asyncio.to_thread(run, "schedules", "show", "stuck-tenants", "--url", url)
    assert "sweeper: it has not run yet" in shown.out
    app = sqlite_world.app()

    @app.task
    async def activate(id: int) -> str:
        return f"tenant {id}"

    @app.sweeper("stuck-tenants")
    def stuck_tenants(sweep: semel.Sweep) -> list[semel.Stuck]:
        return [semel.Stuck(f"tenant-{id}", activate, id) for id in range(3)]

    async with app.worker():
        swept = await asyncio.to_thread(run, "sweep", "stuck-tenants", "--url", url)
        assert (swept.code, "3 stuck: 3 started" in swept.out) == (0, True), swept

        async def there() -> bool:
            return (await app.sweepers.get("stuck-tenants")).report is not None

        await eventually(there)
    shown = await asyncio.to_thread(run, "schedules", "show", "stuck-tenants", "--url", url)
    assert "3 stuck: 3 started" in shown.out
    data = await asyncio.to_thread(run, "schedules", "show", "stuck-tenants", "--url", url, "--json")
    assert data.data["sweeper"]["report"]["started"] == 3
    doctor = await asyncio.to_thread(run, "doctor", "--url", url)
    assert "sweeper stuck-tenants" in doctor.out
