"""Take away one guard of backfills at a time: a named check must notice."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from semel.contract.backfill import BackfillInfo, SlotFate
from semel.contract.decision import Reuse
from semel.engine import backfills as steps
from semel.engines.journal import backfill_scripts as scripts
from semel.engines.postgres import store
from semel.engines.sqlite import writer_thread
from tests.faults.backfill_operations import a_backfill, a_backfill_of_slots_that_ran, ask
from tests.faults.conftest import new_site
from tests.faults.schedule_shop import HOUR, SLOTS, ScheduleShop
from tests.faults.test_mutants import prepare
from tests.faults.test_schedule_mutants import NOTICED, Check, passes

pytestmark = pytest.mark.proof


async def carry_to_the_end(shop: ScheduleShop, id: str = "b-1") -> BackfillInfo:
    for _ in range(2 * SLOTS):
        await (await shop.schedules()).backfills.carry_on()
        await shop.run_all()
        await shop.site.advance(60)
    await (await shop.schedules()).backfills.carry_on()
    return await shop.app.schedules.backfills.get(id)


async def who_comes_late_does_not_carry_on(shop: ScheduleShop) -> None:
    """Somebody else has carried it on since this one has found it due."""
    await a_backfill(shop)
    schedules = await shop.schedules()
    found = await shop.store.run(scripts.find_due, "default", 10)
    assert [row.id for row in found] == ["b-1"]
    await schedules.backfills.carry_on()
    late = await shop.store.run(scripts.step, "default", "b-1", schedules._where, 1 << 20, 1 << 60)
    assert late is None


async def every_slot_is_run_once_and_counted_once(shop: ScheduleShop) -> None:
    await a_backfill(shop)
    done = await carry_to_the_end(shop)
    assert (done.status, done.started, done.completed, done.left) == ("completed", SLOTS, SLOTS, {})
    assert max(shop.ledger.times().values()) == 1
    assert await shop.site.sql("select count(*) from semel_run") == [(SLOTS,)]


async def never_more_at_once_than_asked_for(shop: ScheduleShop) -> None:
    await a_backfill(shop)
    for _ in range(3):
        await (await shop.schedules()).backfills.carry_on()
        await shop.site.advance(60)
    assert await shop.site.sql("select count(*) from semel_run") == [(2,)]


async def slots_run_again_as_the_next_generation(shop: ScheduleShop) -> None:
    await a_backfill_of_slots_that_ran(shop)
    done = await carry_to_the_end(shop, "again")
    assert (done.status, done.completed) == ("completed", SLOTS)
    assert len(shop.ledger.times()) == 2 * SLOTS, "each run has an effect of its own"
    assert await shop.site.sql("select count(distinct execution) from semel_run") == [(2 * SLOTS,)]


async def an_open_slot_is_left_to_its_schedule(shop: ScheduleShop) -> None:
    begin = shop.begin
    await shop.put("report", shop.report, "Paris", begin=begin)
    await (await shop.schedules()).tick()
    await shop.site.advance(HOUR + 120)
    await shop.app.schedules.backfill("report", begin, begin + timedelta(minutes=1), request_key="b-1")
    await (await shop.schedules()).backfills.carry_on()
    assert await shop.site.sql("select count(*) from semel_run") == [(0,)]
    await (await shop.schedules()).tick()
    assert await shop.site.sql("select why from semel_run") == [("slot",)]
    done = await carry_to_the_end(shop)
    assert (done.started, sum(done.left.values())) == (0, 1)


async def one_that_is_paused_starts_nothing(shop: ScheduleShop) -> None:
    await a_backfill(shop)
    await shop.app.schedules.backfills.pause("b-1")
    await (await shop.schedules()).backfills.carry_on()
    assert await shop.site.sql("select count(*) from semel_run") == [(0,)]


SQLITE = [
    ("lock_due_backfill: only what is still due", who_comes_late_does_not_carry_on, "lock_due_backfill",
     "due_at <= semel_now()", "1"),
    ("advance_backfill: the cursor moves with the runs", every_slot_is_run_once_and_counted_once, "advance_backfill",
     "cursor = ?3", "cursor = cursor + 0 * ?3"),
    ("advance_backfill: the state moves with the runs", never_more_at_once_than_asked_for, "advance_backfill",
     "state = ?6", "state = coalesce(state, ?6)"),
    ("add_runs: every run has its record", every_slot_is_run_once_and_counted_once, "add_runs", "where true",
     "where false"),
    ("slot_runs: what ran is known", slots_run_again_as_the_next_generation, "slot_runs", "slot <= ?4", "slot < ?3"),
    ("change_backfill: paused means paused", one_that_is_paused_starts_nothing, "change_backfill", "phase = ?3",
     "phase = coalesce(phase, ?3)"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "check", "statement", "old", "new"), SQLITE, ids=[one[0] for one in SQLITE])
def test_a_missing_guard_of_backfills_is_noticed(
    name: str, check: Check, statement: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, check))
    parts = writer_thread.statements()[statement]
    assert any(old in sql for sql, _ in parts), "the mutant does not fit the statement any more"
    monkeypatch.setitem(writer_thread.statements(), statement, [(sql.replace(old, new), count) for sql, count in parts])
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, check))


def test_without_the_policy_of_keys_no_slot_would_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, slots_run_again_as_the_next_generation))

    class Strict:
        ALWAYS = Reuse.REJECT

    monkeypatch.setattr(steps, "Reuse", Strict)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, slots_run_again_as_the_next_generation))


def test_without_patience_a_backfill_would_take_an_open_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = prepare(tmp_path)
    asyncio.run(passes(site, an_open_slot_is_left_to_its_schedule))
    real = steps.next_slots

    def impatient(row: Any, decided_until: datetime | None) -> list[datetime]:
        return real(row, None)

    monkeypatch.setattr(scripts, "next_slots", impatient)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, an_open_slot_is_left_to_its_schedule))


async def one_carries_on_at_a_time(shop: ScheduleShop) -> None:
    """Somebody else carries it on: it is passed over, and not waited for."""
    await a_backfill(shop)
    other = await asyncpg.connect(shop.site.url)
    try:
        async with other.transaction():
            await other.fetch("select * from semel_backfill for update")
            assert await asyncio.wait_for((await shop.schedules()).backfills.carry_on(), 20) == 0
    finally:
        await other.close()


def test_without_the_lock_two_would_carry_on_at_once(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = new_site("postgres", tmp_path, request)
    asyncio.run(passes(site, one_carries_on_at_a_time))
    queries = dict(store.load_queries("semel.engines.postgres"))
    assert "for update skip locked" in queries["lock_due_backfill"]
    queries["lock_due_backfill"] = queries["lock_due_backfill"].replace("for update skip locked", "")
    monkeypatch.setattr(store, "load_queries", lambda package: queries)
    with pytest.raises(NOTICED):
        asyncio.run(passes(site, one_carries_on_at_a_time))


async def two_backfills_run_a_slot_once(shop: ScheduleShop) -> None:
    memo = await a_backfill(shop)
    await ask(shop, memo, "b-2")
    done = [await carry_to_the_end(shop), await shop.app.schedules.backfills.get("b-2")]
    assert sum(one.started for one in done) == SLOTS
    assert sum(count for one in done for fate, count in one.left.items() if fate is not SlotFate.MISSING) == SLOTS
    assert max(shop.ledger.times().values()) == 1


def test_two_backfills_of_the_same_slots_run_each_once(tmp_path: Path) -> None:
    asyncio.run(passes(prepare(tmp_path), two_backfills_run_a_slot_once))
