"""Duplicates that did not run are counted beside the way, and written in groups."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from semel.contract.decision import Reason
from semel.engines.journal.script import Row
from semel.engines.temporal.records import Records
from semel.errors import EngineUnavailable
from semel.runtime import duplicates
from semel.runtime.duplicates import DuplicateCounter
from semel.testing import Fault
from tests.engines.temporal.archive import WEEK, Away, opened, tapped
from tests.world import World, eventually


def counted(records: Records, execution: str, times: int, at: datetime) -> None:
    for n in range(times):
        records.count(execution, Reason.JOINED, at + timedelta(seconds=n), WEEK)


async def test_they_are_counted_by_execution_and_reason(world: World) -> None:
    async with opened(world) as records:
        now = world.now()
        counted(records, "r1", 3, now)
        records.count("r1", Reason.INPUT_DIFFERS, now, WEEK)
        records.count("r2", Reason.REPLAYED, now, WEEK)
        found = await records.suppressed(["r1"])
        assert found is not None
        assert {(s.reason, s.count) for s in found} == {(Reason.JOINED, 3), (Reason.INPUT_DIFFERS, 1)}
        joined = next(s for s in found if s.reason is Reason.JOINED)
        assert (joined.first_at, joined.last_at) == (now, now + timedelta(seconds=2))
        assert await records.suppressed(["r3"]) == []


async def test_counts_of_several_processes_add_up(world: World) -> None:
    async with opened(world) as one, opened(world) as two:
        counted(one, "r1", 3, world.now())
        counted(two, "r1", 4, world.now() - timedelta(hours=1))
        await asyncio.gather(one.suppressed(["r1"]), two.suppressed(["r1"]))
        (found,) = await one.suppressed(["r1"]) or []
        assert found.count == 7
        assert found.last_at - found.first_at > timedelta(minutes=59)


async def test_they_are_written_in_the_background_and_together(world: World) -> None:
    async with opened(world) as records:
        await records.suppressed([])
        tapped(records, fault := Fault())
        for n in range(500):
            counted(records, f"r{n}", 2, world.now())
        assert fault.statements == []
        await eventually(lambda: fault.statements)
        await eventually(lambda: not records._duplicates._counts)
        assert fault.statements.count("count_record_duplicates") == 1


async def test_close_writes_what_is_left(world: World) -> None:
    async with opened(world) as records:
        counted(records, "r1", 5, world.now())
    async with opened(world) as records:
        (found,) = await records.suppressed(["r1"]) or []
        assert found.count == 5


async def test_nothing_is_opened_for_nothing(new_file: World) -> None:
    async with opened(new_file) as records:
        assert records.there
    assert await new_file.sql("select count(*) from sqlite_master") == [(0,)]


async def test_a_database_that_is_away_loses_none_and_is_named_once(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "FLUSH_AFTER", 0.0)
    monkeypatch.setattr(duplicates, "pause", lambda tries, most: 0.01)
    async with opened(world) as records:
        await records.suppressed([])
        tapped(records, away := Away())
        with caplog.at_level(logging.WARNING, "semel.temporal"):
            for _ in range(10):
                counted(records, "r1", 1, world.now())
                await asyncio.sleep(0.02)
        assert len(caplog.records) == 1
        assert await records.suppressed(["r1"]) is None
        away.away = False
        await eventually(lambda: not records._duplicates._counts)
        (found,) = await records.suppressed(["r1"]) or []
        assert found.count == 10


async def test_a_look_that_fails_leaves_nothing_lying(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it had the counts in its hands, the writer found none to write, and left."""
    monkeypatch.setattr(duplicates, "FLUSH_AFTER", 0.0)
    may_fail, written = asyncio.Event(), []

    async def write(rows: list[Row]) -> None:
        if not may_fail.is_set():
            await may_fail.wait()
            raise EngineUnavailable("the database is away.")
        written.extend(rows)

    counts = DuplicateCounter(write, logging.getLogger("semel.temporal"))
    counts.add("r1", Reason.JOINED, 1)
    look = asyncio.create_task(counts.write())
    await eventually(lambda: counts._writer is None)
    may_fail.set()
    with pytest.raises(EngineUnavailable):
        await look
    await eventually(lambda: written)


async def test_what_is_kept_in_memory_while_the_database_is_away_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "MOST", 3)
    async with opened(world) as records:
        await records.suppressed([])
        tapped(records, away := Away())
        counted(records, "r0", 2, world.now())
        await eventually(lambda: records._duplicates._away)
        for n in range(1, 5):
            counted(records, f"r{n}", 2, world.now())
        away.away = False
        found = await records.suppressed([f"r{n}" for n in range(5)])
        assert found is not None
        assert sorted(s.execution_id for s in found) == ["r0", "r1", "r2"]
        assert records._duplicates.lost == 4


async def test_a_database_that_stays_away_does_not_keep_close_from_ending(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(world) as records:
        await records.suppressed([])
        tapped(records, Away())
        counted(records, "r1", 1, world.now())
    assert "are lost" in caplog.text


async def test_counts_go_when_nobody_has_added_to_them_for_long_enough(world: World) -> None:
    async with opened(world) as records:
        counted(records, "r1", 1, world.now())
        counted(records, "r2", 1, world.now())
        await records.suppressed([])
        await world.advance("6d")
        counted(records, "r2", 1, world.now())
        await records.suppressed([])
        await world.advance("2d")
        assert await records.clean() == 1
        (found,) = await records.suppressed(["r1", "r2"]) or []
        assert (found.execution_id, found.count) == ("r2", 2)


async def test_without_a_database_nothing_is_known() -> None:
    records = Records(None, "default")
    assert not records.there
    records.count("r1", Reason.JOINED, datetime.now(UTC), WEEK)
    assert await records.suppressed(["r1"]) is None
    await records.close()
