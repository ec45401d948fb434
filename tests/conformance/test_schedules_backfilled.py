"""A backfill runs slots of the past, each once, oldest first, and leaves those alone that nobody asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

import semel
from semel.contract.backfill import BackfillInfo, BackfillStatus, SlotFate
from semel.contract.runs import Why
from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World, eventually

MINUTE = timedelta(minutes=1)
FATES = {
    SlotFate.DONE: "d",
    SlotFate.FAILED: "f",
    SlotFate.RUNNING: "r",
    SlotFate.MISSING: "m",
    SlotFate.SKIPPED: "s",
    SlotFate.UNKNOWN: "u",
}


async def plan(shop: Shop, first: int, last: int, **options: Any) -> str:
    """What became of slots, a letter for each; a capital one would run."""
    found = await shop.app.schedules.backfill(
        "daily", shop.slot(first), shop.slot(last) + MINUTE, dry_run=True, **options
    )
    return "".join(FATES[one.fate].upper() if one.runs else FATES[one.fate] for one in found.slots)


async def backfill(shop: Shop, first: int, last: int, **options: Any) -> BackfillInfo:
    return await shop.app.schedules.backfill("daily", shop.slot(first), shop.slot(last) + MINUTE, **options)


async def ended(shop: Shop, id: str) -> BackfillInfo:
    """Wait until a backfill has nothing to do any more."""

    async def over() -> bool:
        await shop.world.advance("1s")
        found = await shop.app.schedules.backfills.get(id)
        return not found.status.open and not found.running

    await eventually(over)
    return await shop.app.schedules.backfills.get(id)


def numbers(shop: Shop, seen: Sequence[semel.Run]) -> list[int]:
    return [round((run.scheduled_for - shop.begin) / HOUR) for run in seen]


async def with_skipped_slots(world: World, **options: Any) -> Shop:
    """Slots 0 to 3 were skipped since nobody looked, slot 4 ran."""
    shop = Shop(world)
    await shop.put(grace="10m", **{"start_at": shop.begin - 10 * HOUR, **options})
    await world.advance("290m")
    async with world.worker(shop.app):
        await shop.is_covered(3)
        await world.advance("10m")
        await shop.ran(4)
        await shop.has_ended(4)
    await world.advance("5m")
    return shop


async def test_slots_that_did_not_run_are_run_oldest_first_under_their_own_ids(world: World) -> None:
    shop = await with_skipped_slots(world)
    assert await plan(shop, -2, 4) == "MMSSSSd"
    async with world.worker(shop.app):
        made = await backfill(shop, -2, 4)
        assert (made.status, made.slots, made.version) == (BackfillStatus.RUNNING, 7, 1)
        done = await ended(shop, made.id)
    assert (done.status, done.started, done.completed, done.failed) == (BackfillStatus.COMPLETED, 6, 6, 0)
    assert (done.left, done.looked_at, done.running) == ({SlotFate.DONE: 1}, 7, ())
    runs = shop.seen[1:]
    assert numbers(shop, runs) == [-2, -1, 0, 1, 2, 3], "one after the other"
    assert {(run.why, run.generation, run.window.slots) for run in runs} == {(Why.BACKFILL, 0, 1)}
    assert (runs[3].window.start, runs[3].window.end) == (shop.slot(0), shop.slot(1))
    assert runs[3].key == f"activity-daily:{shop.slot(1).isoformat()}"
    assert await plan(shop, -2, 4) == "ddddddd", "where a slot was skipped and then run, the run counts"


async def test_a_slot_that_ran_is_run_again_as_its_next_generation(world: World) -> None:
    shop = await with_skipped_slots(world)
    key = f"activity-daily:{shop.slot(4).isoformat()}"
    async with world.worker(shop.app):
        for generation in (1, 2):
            shop.fails = generation == 2
            assert await plan(shop, 4, 4) == "d"
            assert await plan(shop, 4, 4, rerun="all") == "D"
            done = await ended(shop, (await backfill(shop, 4, 4, rerun="all")).id)
            assert (done.started, done.completed, done.failed) == (1, 1 - shop.fails, int(shop.fails))
            assert [run.generation for run in shop.seen] == list(range(generation + 1))
        shop.fails = False
        assert await plan(shop, 4, 4, rerun="missing") == "f"
        done = await ended(shop, (await backfill(shop, 4, 4, rerun="failed")).id)
        assert (done.started, done.completed) == (1, 1)
    runs = await shop.app.schedules.runs("daily")
    assert [(run.generation, run.key) for run in runs if run.scheduled_for == shop.slot(4)] == [
        (generation, key) for generation in (3, 2, 1, 0)
    ]
    assert len({run.execution for run in runs}) == 4, "each is an execution of its own"
    assert "version 1 (backfill, generation 3)" in str(await shop.app.explain(key))


async def test_at_most_so_many_run_at_once_and_slots_go_on_beside_them(world: World) -> None:
    shop = await with_skipped_slots(world)
    shop.holds.clear()
    backfills = shop.app.schedules.backfills
    async with world.worker(shop.app):
        made = await backfill(shop, 0, 3, max_active=2)
        await eventually(lambda: len(shop.seen) == 3)
        assert sorted(numbers(shop, shop.seen[1:])) == [0, 1]
        await world.advance("1h")
        await shop.has_begun(5)
        seen = await backfills.get(made.id)
        assert (len(seen.running), seen.started, seen.done) == (2, 2, 0)
        assert len(shop.seen) == 4
        shop.holds.set()
        done = await ended(shop, made.id)
    assert (done.completed, done.done) == (4, 4)
    assert sorted(numbers(shop, shop.seen)) == [0, 1, 2, 3, 4, 5]


async def test_a_backfill_can_be_paused_resumed_and_cancelled_while_its_schedule_is_paused(world: World) -> None:
    shop = await with_skipped_slots(world)
    shop.holds.clear()
    schedules = shop.app.schedules
    await schedules.pause("daily", "the printer is away")
    async with world.worker(shop.app):
        made = await backfill(shop, 0, 3)
        await shop.has_begun(0)
        assert (await schedules.backfills.pause(made.id, "wait")).status is BackfillStatus.PAUSED
        shop.holds.set()

        async def noticed() -> bool:
            await world.advance("1s")
            return (await schedules.backfills.get(made.id)).completed == 1

        await eventually(noticed)
        paused = await schedules.backfills.get(made.id)
        assert (paused.status, paused.note, paused.started) == (BackfillStatus.PAUSED, "wait", 1)
        shop.holds.clear()
        await schedules.backfills.resume(made.id)
        await shop.has_begun(1)
        await schedules.backfills.cancel(made.id)
        shop.holds.set()
        done = await ended(shop, made.id)
        assert (done.status, done.completed, done.finished_at is not None) == (BackfillStatus.CANCELLED, 2, True)
        assert (await schedules.backfills.resume(made.id)).status is BackfillStatus.CANCELLED, "it has ended"
    assert numbers(shop, shop.seen) == [4, 0, 1]
    assert [one.id for one in await schedules.backfills.list("daily")] == [made.id]


async def test_equal_requests_are_one_backfill(world: World) -> None:
    shop = await with_skipped_slots(world)
    first = await backfill(shop, 0, 3, request_key="week-9")
    again = await backfill(shop, 0, 3, request_key="week-9")
    assert (first.id, again.id) == ("week-9", "week-9")
    with pytest.raises(semel.KeyConflict, match="belongs to another backfill"):
        await backfill(shop, 0, 3, request_key="week-9", rerun="all")
    other = await backfill(shop, 0, 3, max_active=3)
    async with world.worker(shop.app):
        done = [await ended(shop, id_) for id_ in ("week-9", other.id)]
    assert sum(one.started for one in done) == 4, "what one of them runs the other leaves alone"
    assert sorted(numbers(shop, shop.seen)) == [0, 1, 2, 3, 4]


async def test_slots_whose_records_are_gone_run_only_when_forced(world: World) -> None:
    shop = await with_skipped_slots(world, end_at=Shop(world).begin + 6 * HOUR)
    await world.advance("91d")
    schedules: Any = await shop.app.engine.schedules()
    await schedules.forget()
    assert await plan(shop, -1, 4, rerun="all") == "Muuuuu"
    assert await plan(shop, -1, 4, force=True) == "MUUUUU"
    async with world.worker(shop.app):
        done = await ended(shop, (await backfill(shop, -1, 1, force=True)).id)
    assert (done.started, done.completed) == (3, 3)


async def test_a_compressed_slot_is_what_the_run_is_that_covers_it(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="compress", grace="1m")
    await world.advance("190m")
    async with world.worker(shop.app):
        await shop.ran(2)
        await shop.has_ended(2)
        assert await plan(shop, 0, 2) == "ddd"
        assert await plan(shop, 0, 1, rerun="all") == "DD"
        done = await ended(shop, (await backfill(shop, 0, 0, rerun="all")).id)
    assert (done.started, shop.seen[-1].window.slots, shop.seen[-1].generation) == (1, 1, 0)


@pytest.mark.parametrize(
    ("start", "end", "options", "words"),
    [
        (0, 900, {}, "is in the future"),
        (3, 3, {}, "is not after start"),
        (0, 4, {"rerun": "some"}, "use one of 'missing', 'failed', 'all'"),
        (0, 4, {"max_active": 0}, "give a whole number from 1 to 100"),
        (-200_000, 0, {}, "a backfill has at most 100000"),
        (0.5, 0.6, {}, "there is no slot"),
    ],
)
async def test_what_cannot_be_backfilled_is_refused(
    world: World, start: float, end: float, options: Any, words: str
) -> None:
    shop = Shop(world)
    await shop.put(start_at=shop.begin - 300_000 * HOUR)
    await world.advance("6h")
    begin, until = shop.begin + timedelta(hours=start), shop.begin + timedelta(hours=end)
    with pytest.raises(semel.InvalidValue, match=words):
        await shop.app.schedules.backfill("daily", begin, until, **options)
    assert await shop.app.schedules.backfills.list() == []


async def test_a_deleted_schedule_ends_its_backfills(world: World) -> None:
    shop = await with_skipped_slots(world)
    made = await backfill(shop, 0, 3)
    await shop.app.schedules.delete("daily")
    async with world.worker(shop.app):
        done = await ended(shop, made.id)
    assert (done.status, done.note, done.started) == (BackfillStatus.CANCELLED, "its schedule was deleted", 0)
    with pytest.raises(semel.NotFound, match="no schedule 'daily'"):
        await backfill(shop, 0, 3)
    with pytest.raises(semel.NotFound, match="no backfill 'none'"):
        await shop.app.schedules.backfills.pause("none")
