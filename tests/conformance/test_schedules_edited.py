"""An edit of a schedule changes the options that are given, and nothing else; what is covered stays covered."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import semel
from semel.contract.runs import ChangeKind
from semel.engine.declarations import Declared, VersionChanged
from tests.conformance.test_schedules import HOUR, Shop
from tests.world import World


async def test_an_edit_changes_what_is_given_and_nothing_else(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="compress", grace="10m", end_at=shop.begin + 100 * HOUR, finish_by="30m")
    before = await shop.app.schedules.get("daily")
    after = await shop.app.schedules.edit("daily", overlap="buffer_one")
    assert (after.version, after.overlap, after.misfire, after.when) == (2, "buffer_one", "compress", "every 1h")
    assert (after.name, after.owner, after.cursor, after.next_slot) == (
        before.name,
        before.owner,
        before.cursor,
        before.next_slot,
    )
    engine = await shop.app.engine.schedules()
    definition = await engine.definition("daily")
    assert definition is not None
    assert definition.policy.grace == timedelta(minutes=10)
    assert (definition.finish_by, definition.timing.end_at) == (timedelta(minutes=30), shop.begin + 100 * HOUR)
    assert definition.payload == b'{"city":"Paris"}'


async def test_another_kind_of_timing_takes_the_place_of_the_one_before(world: World) -> None:
    shop = Shop(world)
    await shop.app.schedules.put(
        "daily", shop.report, "Paris", cron="0 9 * * *", timezone="Europe/Paris", repeated="last"
    )
    changed = await shop.app.schedules.edit("daily", every="2h")
    assert (changed.when, changed.timezone) == ("every 2h", "Europe/Paris")
    changed = await shop.app.schedules.edit("daily", cron=["0 8 * * *", "0 20 * * *"])
    assert changed.when == "0 8 * * *, 0 20 * * *"
    assert [str(one.wall.time()) for one in await shop.app.schedules.next("daily", 2)] in (
        ["08:00:00", "20:00:00"],
        ["20:00:00", "08:00:00"],
    )


async def test_an_option_that_is_reset_has_its_default_again(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="catchup", jitter="5m", end_at=shop.begin + HOUR)
    changed = await shop.app.schedules.edit("daily", reset=["misfire", "jitter", "end_at"])
    assert changed.misfire == "skip"
    assert len(await shop.app.schedules.next("daily", 5)) == 5, "it does not end any more"


async def test_an_edited_schedule_runs_by_its_new_timing_and_its_windows_tile(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("70m")
        await shop.ran(0)
        await shop.has_ended(0)
        await shop.app.schedules.edit("daily", every="2h")
        await world.advance("1h")  # slot 1 of the old timing
        await world.advance("1h")
        await shop.ran(0, 2)
    assert (shop.seen[1].window.start, shop.seen[1].window.end) == (shop.slot(0), shop.slot(2))
    assert (shop.seen[1].version, await shop.skipped()) == (2, [])


async def test_a_pause_outlives_an_edit(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    await shop.app.schedules.pause("daily", "out of paper")
    changed = await shop.app.schedules.edit("daily", every="2h")
    assert changed.paused_at is not None
    assert changed.note == "out of paper"


async def test_an_edit_that_changes_nothing_makes_no_version(world: World) -> None:
    shop = Shop(world)
    await shop.put(grace="10m")
    assert (await shop.app.schedules.edit("daily", grace="600s")).version == 1


async def test_edits_at_the_same_time_are_all_kept(world: World) -> None:
    shop, other = Shop(world), Shop(world)
    await shop.put()
    await asyncio.gather(
        shop.app.schedules.edit("daily", misfire="compress"), other.app.schedules.edit("daily", overlap="buffer_one")
    )
    found = await shop.app.schedules.get("daily")
    assert (found.misfire, found.overlap, found.version) == ("compress", "buffer_one", 3)


async def test_a_change_that_was_made_from_an_older_version_is_refused(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    engine = await shop.app.engine.schedules()
    old = await engine.definition("daily")
    assert old is not None
    await shop.app.schedules.edit("daily", every="2h")
    for id_, version in (("daily", 1), ("gone", 1)):
        with pytest.raises(VersionChanged):
            await engine.apply([Declared(id_, "api", old, version)], prune=(), take_over=True, write=True)
    assert [(one.id, one.when) for one in await shop.app.schedules.list()] == [("daily", "every 2h")]


async def test_what_code_declares_stays_codes_and_apply_tells_the_difference(world: World) -> None:
    app = world.app()

    @app.on_schedule("0 9 * * *", id="nightly")
    @app.task
    async def digest() -> None: ...

    await app.apply()
    assert (await app.schedules.edit("nightly", cron="0 10 * * *")).owner == "code"
    (change,) = await app.apply(dry_run=True)
    assert (change.kind, change.id) == (ChangeKind.CHANGE, "nightly")
    await app.apply()
    assert (await app.schedules.get("nightly")).when == "0 9 * * *"


async def test_edits_that_make_no_sense_are_refused(world: World) -> None:
    shop = Shop(world)
    with pytest.raises(semel.NotFound, match="no schedule 'daily'"):
        await shop.app.schedules.edit("daily", every="2h")
    await shop.put()
    with pytest.raises(semel.InvalidValue, match="one of cron=, every= and at="):
        await shop.app.schedules.edit("daily", every="2h", cron="* * * * *")
    with pytest.raises(semel.InvalidValue, match="no default to go back to"):
        await shop.app.schedules.edit("daily", reset=["every"])
    with pytest.raises(semel.InvalidValue, match="given and reset"):
        await shop.app.schedules.edit("daily", reset=["grace"], grace="1m")
    with pytest.raises(TypeError, match="no option 'crom'"):
        await shop.app.schedules.edit("daily", crom="* * * * *")  # type: ignore[call-arg]
    assert (await shop.app.schedules.get("daily")).version == 1


async def test_runs_after_an_edit_go_to_the_new_queue(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    changed = await shop.app.schedules.edit("daily", queue="reports", priority=3)
    assert (changed.queue, changed.version) == ("reports", 2)
    execution = await (await shop.app.schedules.trigger("daily")).describe()
    assert (execution.queue, execution.priority) == ("reports", 3)
    with pytest.raises(semel.InvalidValue, match="queue"):
        await shop.app.schedules.edit("daily", queue="no queue")
