"""Each slot of a schedule runs once, under its exact id; one that does not run leaves its reason."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

import semel
from semel.contract.runs import ChangeKind, Why
from semel.contract.slot_policy import SkipReason
from tests.world import World, eventually

HOUR = timedelta(hours=1)


def first_slot(world: World) -> datetime:
    """A slot that is an hour away."""
    return world.now().replace(microsecond=0) + HOUR


class Shop:
    """A task that notes its runs, and an hourly schedule of it whose first slot is an hour away."""

    def __init__(self, world: World, app: semel.App | None = None) -> None:
        self.world = world
        self.app = app or world.app()
        self.seen: list[semel.Run] = []
        self.begin = first_slot(world)
        self.holds = asyncio.Event()
        self.holds.set()
        self.fails = False

        @self.app.task(retry=1, name="report")
        async def report(city: str, run: semel.Run) -> str:
            self.seen.append(run)
            await self.holds.wait()
            if self.fails:
                raise ValueError("no paper")
            return f"{city} {run.scheduled_for.isoformat()}"

        self.report = report

    async def put(self, **options: Any) -> None:
        await self.app.schedules.put(
            "daily", self.report, "Paris", **{"every": "1h", "start_at": self.begin, **options}
        )

    def slot(self, number: int) -> datetime:
        return self.begin + number * HOUR

    async def ran(self, *numbers: int) -> None:
        """Wait until exactly these slots have run, in this order."""
        wanted = [self.slot(number) for number in numbers]
        await eventually(lambda: len(self.seen) >= len(wanted))
        assert [run.scheduled_for for run in self.seen] == wanted

    async def is_covered(self, number: int) -> None:
        """Wait until a slot has been decided about."""

        async def covered() -> bool:
            return (await self.app.schedules.get("daily")).cursor >= self.slot(number)

        await eventually(covered)

    async def has_begun(self, number: int) -> None:
        """Wait until the run of a slot has begun; others may have begun after it."""
        await eventually(lambda: self.slot(number) in [run.scheduled_for for run in self.seen])

    async def has_ended(self, number: int) -> None:
        """Wait until the run of a slot has ended."""
        handle = await self.app.find(f"activity-daily:{self.slot(number).isoformat()}")
        assert handle is not None
        await handle.result("60s")

    async def skipped(self) -> list[tuple[str, int, int, int]]:
        """Reasons, first and last slot, and count; oldest first."""
        found = await self.app.schedules.skipped("daily")
        return [
            (one.reason.value, round((one.first - self.begin) / HOUR), round((one.last - self.begin) / HOUR), one.count)
            for one in reversed(found)
        ]


async def test_a_slot_runs_once_under_its_exact_id(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("70m")
        await shop.ran(0)
        await shop.has_ended(0)
        await world.advance("1h")
        await shop.ran(0, 1)
    key = f"activity-daily:{shop.begin:%Y-%m-%dT%H:%M:%S}+00:00"
    first, second = shop.seen
    assert first.key == key
    assert (first.schedule, first.why, first.version, first.window.slots) == ("daily", Why.SLOT, 1, 1)
    assert first.next_slots[:2] == (shop.slot(1), shop.slot(2))
    assert (second.window.start, second.window.end) == (shop.slot(0), shop.slot(1)), "windows tile"
    assert second.previous_result == f"Paris {shop.begin.isoformat()}"
    handle = await shop.app.find(key)
    assert handle is not None
    assert await handle.result("60s") == f"Paris {shop.begin.isoformat()}"
    runs = await shop.app.schedules.runs("daily")
    assert [(run.scheduled_for, run.key) for run in runs] == [(shop.slot(1), second.key), (shop.slot(0), key)]
    assert runs[1].execution == handle.id
    assert await shop.skipped() == []


async def test_a_workflow_runs_by_a_schedule(world: World) -> None:
    app = world.app()
    begin = first_slot(world)

    @app.on_schedule(every="1h", start_at=begin, id="nightly")
    @app.workflow
    async def digest(ctx: semel.Context, run: semel.Run) -> str:
        return run.scheduled_for.isoformat()

    assert [str(change) for change in await app.apply()] == ["create nightly"]
    async with world.worker(app):
        await world.advance("1h")
        handle: Any = None

        async def there() -> bool:
            nonlocal handle
            handle = await app.find(f"activity-nightly:{begin.isoformat()}")
            return handle is not None

        await eventually(there)
        assert await handle.result("60s") == begin.isoformat()
        assert (await handle.describe()).kind == "workflow"


async def test_many_workers_tick_and_each_slot_runs_once(world: World) -> None:
    shop, other = Shop(world), Shop(world)
    other.seen = shop.seen
    await shop.put()
    # Leases are long: a clock that jumps would let one worker bury the other.
    async with world.worker(shop.app, lease="1d"), world.worker(other.app, lease="1d"):
        for number in range(3):
            await world.advance("1h")
            await shop.ran(*range(number + 1))
            await shop.has_ended(number)
    assert len(await shop.app.schedules.runs("daily")) == 3


async def test_late_slots_are_skipped_and_say_so(world: World) -> None:
    shop = Shop(world)
    await shop.put(grace="10m")
    await world.advance("350m")  # slots 0 to 4 are over an hour to 50 minutes late
    async with world.worker(shop.app):
        await shop.is_covered(4)
        await world.advance("10m")
        await shop.ran(5)
    assert await shop.skipped() == [("late", 0, 4, 5)]


async def test_explain_tells_what_became_of_a_slot(world: World) -> None:
    shop = Shop(world)
    await shop.put(grace="10m")
    await world.advance("350m")
    async with world.worker(shop.app):
        await shop.is_covered(4)
        await world.advance("10m")
        await shop.ran(5)
        await shop.has_ended(5)
    late = str(await shop.app.explain(f"activity-daily:{shop.slot(2).isoformat()}"))
    assert "Schedule 'daily' did not run this slot. 5 slots from" in late
    assert late.endswith(": late.")
    ran = str(await shop.app.explain(f"activity-daily:{shop.slot(5).isoformat()}"))
    assert f"Run of schedule 'daily', version 1 (slot), after {shop.slot(4):%Y-%m-%d %H:%M:%S} UTC." in ran
    assert "completed" in ran


async def test_records_of_slots_are_forgotten_after_their_time(world: World) -> None:
    shop = Shop(world)
    await shop.put(grace="10m", end_at=shop.begin + 6 * HOUR)
    await world.advance("350m")
    schedules: Any = await shop.app.engine.schedules()
    async with world.worker(shop.app):
        await shop.is_covered(4)
        await world.advance("10m")
        await shop.ran(5)
    await world.advance("89d")
    await schedules.forget()
    assert (len(await shop.app.schedules.runs("daily")), len(await shop.skipped())) == (1, 1)
    await world.advance("2d")
    await schedules.forget()
    assert (await shop.app.schedules.runs("daily"), await shop.skipped()) == ([], [])


async def test_missed_slots_are_caught_up_oldest_first_one_after_the_other(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="catchup", max_catchup=3, grace="1m")
    await world.advance("350m")
    async with world.worker(shop.app):
        for number in (2, 3, 4):
            await shop.has_begun(number)
            await shop.has_ended(number)
            await world.advance("1s")
        await shop.ran(2, 3, 4)
    assert {run.why for run in shop.seen} == {Why.CATCHUP}
    assert await shop.skipped() == [(SkipReason.CATCHUP_LIMIT.value, 0, 1, 2)]


async def test_missed_slots_are_compressed_into_one_run_whose_window_covers_them(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="compress", grace="1m")
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        await shop.has_ended(0)
    await world.advance("230m")  # slots 1, 2 and 3
    async with world.worker(shop.app):
        await shop.ran(0, 3)
    late = shop.seen[-1]
    assert (late.why, late.window.start, late.window.end, late.window.slots) == (
        Why.COMPRESS,
        shop.slot(0),
        shop.slot(3),
        3,
    )
    assert await shop.skipped() == [("compressed", 1, 2, 2)]


async def test_a_slot_during_a_run_is_skipped(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        for number in (1, 2):
            await world.advance("1h")
            await shop.is_covered(number)
        shop.holds.set()
        await shop.has_ended(0)
        await world.advance("1h")
        await shop.ran(0, 3)
    assert await shop.skipped() == [("overlap", 1, 2, 2)], "one range, not a row for each"


async def test_a_slot_during_a_run_waits_for_its_end(world: World) -> None:
    shop = Shop(world)
    await shop.put(overlap="buffer_one")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        for number in (1, 2):
            await world.advance("1h")
            await shop.is_covered(number)
        assert (await shop.app.schedules.get("daily")).waiting == (shop.slot(1),)
        shop.holds.set()
        await shop.has_ended(0)
        await world.advance("2s")
        await shop.ran(0, 1)
    assert await shop.skipped() == [("overlap", 2, 2, 1)]


async def test_slots_that_have_waited_too_long_are_one_range(world: World) -> None:
    shop = Shop(world)
    await shop.put(overlap="buffer_all", start_deadline="3h")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        for number in (1, 2):
            await world.advance("1h")
            await shop.is_covered(number)
        await world.advance("7h")
        await shop.is_covered(9)
        shop.holds.set()
        await shop.has_ended(0)
        await world.advance("2s")
        await shop.ran(0, 9)
    assert await shop.skipped() == [("deadline", 1, 2, 2), ("late", 3, 8, 6)]


async def test_slots_that_wait_are_in_no_range_of_those_that_do_not(world: World) -> None:
    shop = Shop(world)
    await shop.put(misfire="catchup", max_catchup=1, grace="1m")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        for number in (2, 4):
            await world.advance("150m" if number == 2 else "2h")
            await shop.is_covered(number)
        shop.holds.set()
        await shop.has_ended(0)
        for number in (2, 4):
            await world.advance("2s")
            await shop.has_begun(number)
            await shop.has_ended(number)
        await shop.ran(0, 2, 4)
    over = SkipReason.CATCHUP_LIMIT.value
    assert await shop.skipped() == [(over, 1, 1, 1), (over, 3, 3, 1)]


async def test_a_slot_may_cancel_the_run_before(world: World) -> None:
    shop = Shop(world)
    await shop.put(overlap="cancel_other")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        await world.advance("1h")
        await shop.is_covered(1)
        first = await shop.app.find(f"activity-daily:{shop.slot(0).isoformat()}")
        assert first is not None
        with pytest.raises(semel.ExecutionCancelled):
            await first.result("60s")
        await world.advance("2s")
        await shop.ran(0, 1)
        shop.holds.set()


async def test_a_task_that_is_to_be_terminated_has_ended_before_the_next_one_begins(world: World) -> None:
    shop = Shop(world)
    await shop.put(overlap="terminate_other")
    shop.holds.clear()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        await world.advance("1h")
        await shop.is_covered(1)
        first = await shop.app.find(f"activity-daily:{shop.slot(0).isoformat()}")
        assert first is not None
        if len(shop.seen) > 1:
            assert (await first.status()).terminal
        with pytest.raises(semel.ExecutionCancelled):
            await first.result("60s")
        await world.advance("2s")
        await shop.ran(0, 1)
        shop.holds.set()


@pytest.mark.parametrize("options", [{"finish_by": "1h"}, {"every": "30m"}])
async def test_an_edit_in_a_pause_loses_no_slot_from_before_it(world: World, options: dict[str, Any]) -> None:
    shop = Shop(world)
    await shop.put(misfire="catchup")
    await world.advance("190m")  # slots 0, 1 and 2, and nobody looks
    await shop.app.schedules.pause("daily", "an outage")
    await shop.app.schedules.edit("daily", **options)
    await shop.app.schedules.resume("daily")
    async with world.worker(shop.app):
        for number in range(3):
            await eventually(lambda: len(shop.seen) > number)  # noqa: B023
            await shop.has_ended(number)
            await world.advance("1s")
    assert [run.scheduled_for for run in shop.seen][:3] == [shop.slot(0), shop.slot(1), shop.slot(2)]


async def test_slots_inside_a_pause_do_not_run(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    schedules = shop.app.schedules
    async with world.worker(shop.app):
        await world.advance("30m")
        await schedules.pause("daily", "the printer is away")
        paused = await schedules.get("daily")
        assert (paused.paused_at is not None, paused.note, paused.next_slot) == (True, "the printer is away", None)
        await world.advance("3h")
        await schedules.resume("daily")
        await shop.is_covered(2)
        assert shop.seen == []
        await world.advance("40m")
        await shop.ran(3)
    assert await shop.skipped() == [("paused", 0, 2, 3)]


async def test_apply_leaves_pauses_alone_and_a_change_is_a_new_version(world: World) -> None:
    begin = first_slot(world)

    def app_with(**options: Any) -> semel.App:
        app = world.app()

        @app.on_schedule(id="tidy", start_at=begin, **options)
        @app.task
        async def tidy() -> None: ...

        return app

    one = app_with(every="1h")
    assert [change.kind for change in await one.apply(dry_run=True)] == [ChangeKind.CREATE]
    with pytest.raises(semel.NotFound, match="no schedule 'tidy'"):
        await one.schedules.get("tidy")
    assert [change.kind for change in await one.apply()] == [ChangeKind.CREATE]
    assert [change.kind for change in await one.apply()] == [ChangeKind.KEEP]
    await one.schedules.pause("tidy", "by an operator")
    two = app_with(every="2h")
    assert [str(change) for change in await two.apply()] == ["change tidy: version 1 to 2"]
    after = await two.schedules.get("tidy")
    assert (after.version, after.when, after.note, after.paused_at is not None) == (
        2,
        "every 2h",
        "by an operator",
        True,
    )


async def test_an_edit_never_runs_a_slot_again(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        await shop.has_ended(0)
        await shop.put(every="30m")
        await world.advance("1s")
        await world.advance("29m")
        await world.advance("31m")
        await eventually(lambda: len(shop.seen) >= 2)
        await shop.has_ended(1)
    times = [run.scheduled_for for run in shop.seen]
    assert len(set(times)) == len(times)
    assert [run.version for run in shop.seen] == [1] + [2] * (len(times) - 1)


async def test_triggered_by_hand_it_runs_now_and_once_for_each_request(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await shop.app.schedules.pause("daily")
        one = await shop.app.schedules.trigger("daily", "request-1")
        again = await shop.app.schedules.trigger("daily", "request-1")
        other = await shop.app.schedules.trigger("daily", "request-2")
        assert (one.key, one.duplicate) == ("activity-daily:manual:request-1", False)
        assert (again.id, again.duplicate) == (one.id, True)
        assert other.id != one.id
        await asyncio.gather(one.result("60s"), other.result("60s"))
    assert sorted(run.key for run in shop.seen) == [one.key, other.key]
    assert {run.why for run in shop.seen} == {Why.MANUAL}
    with pytest.raises(semel.NotFound):
        await shop.app.schedules.trigger("nightly")


async def test_it_pauses_itself_after_failures(world: World) -> None:
    shop = Shop(world)
    shop.fails = True
    await shop.put(pause_after_failures=2)
    async with world.worker(shop.app):
        for number in range(2):
            await world.advance("1h")
            await eventually(lambda: len(shop.seen) == number + 1)  # noqa: B023
            with pytest.raises(semel.ExecutionFailed):
                await shop.has_ended(number)
        await world.advance("2s")

        async def paused() -> bool:
            world.look_at_schedules()
            return (await shop.app.schedules.get("daily")).paused_at is not None

        await eventually(paused)
    found = await shop.app.schedules.get("daily")
    assert found.note == "paused by itself: 2 runs failed one after the other"


async def test_a_result_that_is_too_large_to_pass_on_holds_nothing_up(world: World) -> None:
    app, begin, seen = world.app(), first_slot(world), list[semel.Run]()

    @app.task
    async def report(run: semel.Run) -> str:
        seen.append(run)
        return "x" * (app.settings.max_payload - 100)

    await app.schedules.put("daily", report, every="1h", start_at=begin)
    async with world.worker(app):
        for number in range(2):
            await world.advance("1h")
            await eventually(lambda: len(seen) == number + 1)  # noqa: B023
            handle = await app.find(seen[-1].key)
            assert handle is not None
            await handle.result("60s")
    assert [run.previous_result for run in seen] == [None, None]


async def test_a_single_time_runs_however_late(world: World) -> None:
    shop = Shop(world)
    await shop.app.schedules.put("daily", shop.report, "Paris", at=shop.begin)
    await world.advance("10d")
    async with world.worker(shop.app):
        await shop.ran(0)
    assert (await shop.app.schedules.get("daily")).next_slot is None


async def test_a_deleted_schedule_fires_no_more(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app):
        await world.advance("1h")
        await shop.ran(0)
        await shop.has_ended(0)
        await shop.app.schedules.delete("daily")
        await world.advance("3h")
        with pytest.raises(semel.NotFound):
            await shop.app.schedules.delete("daily")
    assert len(shop.seen) == 1
    assert len(await shop.app.schedules.runs("daily")) == 1, "its records stay"


async def test_a_task_cannot_change_schedules(world: World) -> None:
    app = world.app()

    @app.task(retry=1)
    async def meddle() -> None:
        await app.schedules.put("more", meddle, every="1h")

    async with world.worker(app):
        with pytest.raises(semel.ExecutionFailed, match="do not change schedules"):
            await (await app.enqueue(meddle)).result("60s")
    assert await app.schedules.list() == []


async def test_a_worker_may_leave_schedules_alone(world: World) -> None:
    shop = Shop(world)
    await shop.put()
    async with world.worker(shop.app, schedules=False):
        await world.advance("1h")
        await asyncio.sleep(world.a_moment)
        assert shop.seen == []
    async with world.worker(shop.app):
        await shop.ran(0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of cron=, every= and at="),
        ({"cron": "61 * * * *"}, "61"),
        ({"cron": "0 9 * * *", "timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"every": "1h", "misfire": "later"}, "misfire='later'"),
        ({"every": "1h", "overlap": "maybe"}, "overlap='maybe'"),
        ({"every": "1h", "pause_after_failures": 0}, "pause_after_failures=0"),
        ({"every": "1h", "finish_by": "0"}, "finish_by=0"),
        ({"at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ],
)
async def test_bad_options_are_refused_at_the_door(world: World, options: dict[str, Any], words: str) -> None:
    shop = Shop(world)
    with pytest.raises(semel.InvalidValue, match=words):
        await shop.app.schedules.put("daily", shop.report, "Paris", **options)
    assert await shop.app.schedules.list() == []


async def test_bad_arguments_are_refused_at_the_door(world: World) -> None:
    shop = Shop(world)
    with pytest.raises(TypeError, match="city"):
        await shop.app.schedules.put("daily", shop.report, every="1h")
    with pytest.raises(TypeError, match="no option 'evry'"):
        await shop.app.schedules.put("daily", shop.report, "Paris", evry="1h")  # type: ignore[call-arg]
    with pytest.raises(semel.InvalidValue, match="activity_id"):
        await shop.app.schedules.put("a b", shop.report, "Paris", every="1h")
    assert await shop.app.schedules.list() == []
