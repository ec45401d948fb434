"""Take away one guard of schedules at a time: a named check must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import semel
from semel.engine import schedule_definitions
from semel.engine.schedules import ActiveRun, ScheduleRow, StoredState
from semel.engine.ticks import Ended, advance
from semel.engines.journal import schedule_scripts as scripts
from semel.engines.journal.script import Script, Store
from semel.engines.postgres import store
from semel.engines.sqlite import writer_thread
from semel.engines.temporal.cluster import Cluster
from semel.engines.temporal.schedules import ClusterRuns
from tests.faults.conftest import new_site
from tests.faults.schedule_invariants import run_faults, slot_faults
from tests.faults.schedule_shop import HOUR, ScheduleShop, grid_of
from tests.faults.site import Site
from tests.faults.test_mutants import prepare

pytestmark = pytest.mark.proof
Check = Callable[[ScheduleShop], Awaitable[None]]
NOTICED = (AssertionError, TimeoutError, semel.SemelError)


async def open_slot(shop: ScheduleShop, **options: Any) -> datetime:
    """A schedule whose first slot has come."""
    begin = shop.begin
    await shop.put("report", shop.report, "Paris", begin=begin, **options)
    await (await shop.schedules()).tick()
    await shop.site.advance(HOUR + 1)
    return begin


async def one_looks_at_a_time(shop: ScheduleShop) -> None:
    """Somebody else looks: it is passed over, and not waited for."""
    await open_slot(shop)
    other = await asyncpg.connect(shop.site.url)
    try:
        async with other.transaction():
            await other.fetch("select * from semel_schedule for update")
            schedules = await shop.schedules()
            assert await asyncio.wait_for(schedules.tick(), 20) == 0
            found = shop.store.run(scripts.tick, "default", ["report"], schedules._where, 1 << 20)
            assert (await asyncio.wait_for(found, 20)).looked == 0
    finally:
        await other.close()


async def who_comes_late_does_not_look(shop: ScheduleShop) -> None:
    """Somebody else has looked, or has paused it, since this one has found it due."""
    await open_slot(shop)
    schedules = await shop.schedules()
    found = await shop.store.run(scripts.find_due, "default", 10)
    assert [row.id for row in found] == ["report"]
    await schedules.tick()
    late = await shop.store.run(scripts.tick, "default", ["report"], schedules._where, 1 << 20)
    assert (late.looked, late.started) == (0, ())


async def every_slot_has_one_fate(shop: ScheduleShop) -> None:
    begin = await open_slot(shop)
    for _ in range(3):
        await (await shop.schedules()).tick()
        await shop.run_all()
        await shop.site.advance(HOUR)
    await (await shop.schedules()).tick()
    assert await slot_faults(shop.site.sql, "report", grid_of(begin), ended=False) == []
    assert await run_faults(shop.site.sql) == []
    assert await shop.site.sql("select count(*) from semel_run") == [(4,)]


async def a_slot_that_has_run_does_not_run_again(shop: ScheduleShop) -> None:
    """Also if the schedule was restored from a backup, and its cursor is before the slot."""
    await open_slot(shop)
    await (await shop.schedules()).tick()
    await shop.run_all()
    await shop.site.script("update semel_schedule set cursor = cursor - 3600000000, due_at = 1")
    await (await shop.schedules()).tick()
    await shop.run_all()
    assert max(shop.ledger.times().values()) == 1
    assert await shop.site.sql("select count(*) from semel_execution") == [(1,)]


async def what_a_worker_runs_is_not_dropped(shop: ScheduleShop) -> None:
    await is_not_dropped(shop, "owner = 1")


async def what_was_tried_is_not_dropped(shop: ScheduleShop) -> None:
    await is_not_dropped(shop, "attempt = 1")


async def is_not_dropped(shop: ScheduleShop, changed: str) -> None:
    """The start deadline of a run has passed, of which somebody has changed this."""
    await open_slot(shop, start_deadline="10m")
    await (await shop.schedules()).tick()
    await shop.site.script(f"update semel_ready set {changed}")
    await shop.site.advance(HOUR / 4)
    await (await shop.schedules()).tick()
    assert await shop.site.sql("select count(*) from semel_run") == [(1,)]
    assert await shop.site.sql("select count(*) from semel_skipped") == [(0,)]


SQLITE = [
    ("withdraw_unbegun: not what a worker runs", what_a_worker_runs_is_not_dropped, "withdraw_unbegun",
     "and owner is null", ""),
    ("withdraw_unbegun: not what was tried before", what_was_tried_is_not_dropped, "withdraw_unbegun",
     "and attempt = 0", ""),
    ("lock_due_schedules: only what is still due", who_comes_late_does_not_look, "lock_due_schedules",
     "s.due_at <= semel_now()", "1"),
    ("advance_schedules: the cursor moves with the runs", every_slot_has_one_fate, "advance_schedules",
     "cursor = o.value ->> 1", "cursor = cursor"),
    ("add_runs: every run has its record", every_slot_has_one_fate, "add_runs", "where true", "where false"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "check", "statement", "old", "new"), SQLITE, ids=[one[0] for one in SQLITE])
def test_a_missing_guard_of_schedules_is_noticed(
    name: str, check: Check, statement: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, check))
    parts = writer_thread.statements()[statement]
    assert any(old in sql for sql, _ in parts), "the mutant does not fit the statement any more"
    monkeypatch.setitem(writer_thread.statements(), statement, [(sql.replace(old, new), count) for sql, count in parts])
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, check))


@pytest.mark.parametrize("statement", ["lock_due_schedules", "lock_next_schedules"])
def test_without_the_lock_two_would_look_at_once(
    statement: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site("postgres", tmp_path, request)
    asyncio.run(passes(site, one_looks_at_a_time))
    queries = dict(store.load_queries("semel.engines.postgres"))
    assert "for update skip locked" in queries[statement]
    queries[statement] = queries[statement].replace("for update skip locked", "")
    monkeypatch.setattr(store, "load_queries", lambda package: queries)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, one_looks_at_a_time))


def test_without_the_policy_of_keys_a_slot_would_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, a_slot_that_has_run_does_not_run_again))
    real = schedule_definitions.options_of

    def lenient(settings: Any, own: Any, on_duplicate: Any, reuse: Any, *more: Any) -> Any:
        return real(settings, own, on_duplicate, "always", *more)

    monkeypatch.setattr(schedule_definitions, "options_of", lenient)
    with pytest.raises(AssertionError):
        asyncio.run(passes(site, a_slot_that_has_run_does_not_run_again))


class ForgetfulRuns(ClusterRuns):
    """Takes a run that the cluster was not asked about for one that has ended."""

    def ends(self, rows: Any) -> Script[Ended]:
        yield from ()
        return {}


def starts_while_an_unknown_run_is_active(runs: type[ClusterRuns], row: ScheduleRow) -> int:
    """How many runs a look starts that meets one which another worker has started meanwhile."""
    where = runs(Cluster.__new__(Cluster), object.__new__(Store))
    script = where.ends([row])
    try:
        next(script)
    except StopIteration as end:
        return len(advance(row, end.value, max_payload=1 << 20).starts)
    raise AssertionError("it asks the database")


def test_without_care_an_unknown_run_would_be_overlapped(tmp_path: Path) -> None:
    site = prepare(tmp_path)
    row = asyncio.run(a_row(site))
    active = StoredState(active=(ActiveRun("activity-report:1", datetime.now().astimezone() - timedelta(hours=1)),))
    row = row._replace(state=active.to_bytes())
    assert starts_while_an_unknown_run_is_active(ClusterRuns, row) == 0
    assert starts_while_an_unknown_run_is_active(ForgetfulRuns, row) == 1


async def a_row(site: Site) -> ScheduleRow:
    async with ScheduleShop(site) as shop:
        await open_slot(shop)
        (row,) = await shop.store.run(scripts.find_due, "default", 10)
        return row


async def passes(site: Site, check: Check) -> None:
    await site.reset()
    async with ScheduleShop(site) as shop:
        await check(shop)
