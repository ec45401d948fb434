"""An activity is a schedule of one task, or of several in one run whose task instances have exact ids."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import semel
from semel.triggers import (
    ActivityDefinition,
    CronTriggerConfig,
    EventTriggerConfig,
    IntervalTriggerConfig,
    OnceTriggerConfig,
    TaskSpec,
)
from semel.triggers.ids import derive_run_id
from tests.world import World, eventually

HOUR = timedelta(hours=1)
ID = "550e8400-e29b-41d4-a716-446655440000"


class Shop:
    """An app with tasks that note what they did."""

    def __init__(self, world: World) -> None:
        self.app = app = world.app()
        self.begin = world.now().replace(microsecond=0) + HOUR
        self.seen: list[tuple[str, str | None]] = []
        self.fails = False

        @app.task(retry=1)
        async def collect(city: str, run: semel.Run) -> str:
            self.seen.append((f"collect {city}", semel.current().key))
            return f"{city} {run.scheduled_for.isoformat()}"

        @app.task(retry=1)
        async def send(to: str = "all") -> str:
            self.seen.append((f"send {to}", semel.current().key))
            if self.fails:
                raise ValueError("no mail today")
            return f"sent to {to}"

    def trigger(self, **options: Any) -> IntervalTriggerConfig:
        return IntervalTriggerConfig(every="1h", start_at=self.begin, **options)

    @property
    def run(self) -> str:
        return f"activity-{ID}:{self.begin.isoformat()}"

    async def handle(self) -> semel.Handle[Any]:
        found: semel.Handle[Any] = await eventually(lambda: self.app.find(self.run))
        return found


async def test_an_activity_with_one_task_is_that_task_under_the_id_of_its_slot(world: World) -> None:
    shop = Shop(world)
    shop.app.activity(
        ActivityDefinition(
            activity_id=ID,
            triggers=shop.trigger(),
            tasks=TaskSpec(task_type="collect", arguments={"city": "Paris"}),
        )
    )
    assert [str(change) for change in await shop.app.apply()] == [f"create {ID}"]
    async with world.worker(shop.app):
        await world.advance("1h")
        handle = await shop.handle()
        assert await handle.result("60s") == f"Paris {shop.begin.isoformat()}"
    assert shop.seen == [("collect Paris", shop.run)]


async def test_an_activity_with_several_tasks_spawns_instances_with_exact_ids(world: World) -> None:
    shop = Shop(world)
    shop.app.activity(
        ActivityDefinition(
            activity_id=ID,
            triggers=shop.trigger(),
            tasks=[
                TaskSpec(task_type="collect", arguments={"city": "Paris"}),
                TaskSpec(task_type="collect", arguments={"city": "Rome"}),
                TaskSpec(task_type="send"),
            ],
        )
    )
    await shop.app.apply()
    async with world.worker(shop.app):
        await world.advance("1h")
        handle = await shop.handle()
        slot = shop.begin.isoformat()
        assert await handle.result("60s") == [f"Paris {slot}", f"Rome {slot}", "sent to all"]
        assert (await handle.describe()).kind == "workflow"
    run_id = derive_run_id(shop.app.settings.namespace, "schedule", shop.run)
    assert sorted(shop.seen) == [
        ("collect Paris", f"task-{run_id}:collect:0"),
        ("collect Rome", f"task-{run_id}:collect:1"),
        ("send all", f"task-{run_id}:send:2"),
    ]
    instance = await shop.app.find(f"task-{run_id}:send:2")
    assert instance is not None
    assert await instance.result("60s") == "sent to all"


async def test_a_run_that_failed_can_be_run_again_and_repeats_only_what_failed(world: World) -> None:
    shop = Shop(world)
    shop.fails = True
    tasks = [TaskSpec(task_type="collect", arguments={"city": "Paris"}), TaskSpec(task_type="send")]
    shop.app.activity(ActivityDefinition(activity_id=ID, triggers=shop.trigger(), tasks=tasks))
    await shop.app.apply()
    async with world.worker(shop.app):
        await world.advance("1h")
        handle = await shop.handle()
        with pytest.raises(semel.ExecutionFailed, match="no mail today"):
            await handle.result("60s")
        shop.fails = False
        again = await shop.app.redrive(handle.id)
        assert await again.result("60s") == [f"Paris {shop.begin.isoformat()}", "sent to all"]
    assert sorted(what for what, _ in shop.seen) == ["collect Paris", "send all", "send all"]


async def test_slots_of_two_triggers_that_meet_are_one_run(world: World) -> None:
    """One activity, one line of runs: its triggers share the cursor, the windows and the policies."""
    shop = Shop(world)
    half = IntervalTriggerConfig(every="30m", start_at=shop.begin, end_at=shop.begin + HOUR)
    single = OnceTriggerConfig(at=shop.begin + timedelta(minutes=10), overlap="buffer_all")
    shop.app.activity(
        ActivityDefinition(
            activity_id=ID,
            triggers=[shop.trigger(), half, single],
            tasks=TaskSpec(task_type="collect", arguments={"city": "Paris"}),
        )
    )
    await shop.app.apply()
    info = await shop.app.schedules.get(ID)
    assert info.when == f"every 1h and every 30m and at {single.at[0].isoformat()}"
    assert info.overlap == "buffer_all", "an option of one trigger counts for the activity"
    assert [one.slots[0] - shop.begin for one in await shop.app.schedules.next(ID, 4)] == [
        timedelta(minutes=minutes) for minutes in (0, 10, 30, 60)
    ]
    with pytest.raises(semel.InvalidValue, match="several triggers"):
        await shop.app.schedules.edit(ID, cron="@daily")
    assert (await shop.app.schedules.edit(ID, max_buffer=5)).when == info.when
    async with world.worker(shop.app):
        for step, minutes in ((60, 0), (10, 10), (20, 30), (30, 60)):
            await world.advance(timedelta(minutes=step))
            slot = shop.begin + timedelta(minutes=minutes)
            await eventually(partial(_result, shop, f"activity-{ID}:{slot.isoformat()}"))
    runs = [*reversed(await shop.app.schedules.runs(ID))]
    assert [(one.scheduled_for - shop.begin) // timedelta(minutes=1) for one in runs] == [0, 10, 30, 60]
    assert [one.window_start for one in runs[1:]] == [one.scheduled_for for one in runs[:-1]], "windows tile"
    assert len(shop.seen) == 4


async def _result(shop: Shop, key: str) -> Any:
    handle = await shop.app.find(key)
    return handle and await handle.result("60s")


@pytest.mark.parametrize(
    ("triggers", "words"),
    [
        (
            [CronTriggerConfig(cron="@daily", overlap="skip"), IntervalTriggerConfig(every="1h", overlap="allow_all")],
            "different values of overlap",
        ),
        (
            [CronTriggerConfig(cron="@daily"), IntervalTriggerConfig(every="1h", after="finish")],
            "after='finish' has no trigger by time beside it",
        ),
    ],
)
def test_triggers_of_one_activity_agree(triggers: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ActivityDefinition(activity_id=ID, triggers=triggers, tasks=TaskSpec(task_type="send"))


async def test_a_run_that_is_backfilled_again_has_task_instances_of_its_own(world: World) -> None:
    shop = Shop(world)
    shop.fails = True
    tasks = [TaskSpec(task_type="collect", arguments={"city": "Paris"}), TaskSpec(task_type="send")]
    shop.app.activity(ActivityDefinition(activity_id=ID, triggers=shop.trigger(), tasks=tasks))
    await shop.app.apply()
    async with world.worker(shop.app):
        await world.advance("1h")
        handle = await shop.handle()
        with pytest.raises(semel.ExecutionFailed, match="no mail today"):
            await handle.result("60s")
        shop.fails = False
        await world.advance("1m")
        end = shop.begin + timedelta(seconds=1)
        made = await shop.app.schedules.backfill(ID, shop.begin, end, rerun="failed")

        async def completed() -> bool:
            await world.advance("1s")
            return (await shop.app.schedules.backfills.get(made.id)).completed == 1

        await eventually(completed)
    ids = [derive_run_id(shop.app.settings.namespace, "schedule", shop.run, generation) for generation in (0, 1)]
    assert sorted(shop.seen) == sorted(
        (what, f"task-{run_id}:{name}:{index}")
        for run_id in ids
        for index, (what, name) in enumerate([("collect Paris", "collect"), ("send all", "send")])
    )


async def test_activities_come_from_files(world: World, tmp_path: Path) -> None:
    shop = Shop(world)
    (tmp_path / "nightly.toml").write_text(
        """
activity_id = "nightly"
[[triggers]]
type = "cron"
cron = "0 3 * * *"
timezone = "Europe/Paris"
misfire_policy = "compress"
[[tasks]]
task_type = "collect"
arguments = { city = "Paris" }
""",
        encoding="utf-8",
    )
    assert shop.app.load_activities(tmp_path) == ["nightly"]
    await shop.app.apply()
    found = await shop.app.schedules.get("nightly")
    assert (found.owner, found.name, found.when, found.timezone, found.misfire) == (
        "file",
        "collect",
        "0 3 * * *",
        "Europe/Paris",
        "compress",
    )
    assert [str(change) for change in await world.app().apply(prune=True)] == ["delete nightly"]


@pytest.mark.parametrize(
    ("tasks", "triggers", "words"),
    [
        ([TaskSpec(task_type="colect")], CronTriggerConfig(cron="@daily"), "Did you mean 'collect'"),
        ([TaskSpec(task_type="colect")], EventTriggerConfig(types="order.paid"), "Did you mean 'collect'"),
    ],
)
async def test_what_cannot_run_is_refused_at_the_door(world: World, tasks: Any, triggers: Any, words: str) -> None:
    shop = Shop(world)
    with pytest.raises(semel.SemelError, match=words):
        shop.app.activity(ActivityDefinition(activity_id=ID, triggers=triggers, tasks=tasks))
    with pytest.raises(TypeError, match="city"):
        shop.app.activity(
            ActivityDefinition(
                activity_id=ID, triggers=CronTriggerConfig(cron="@daily"), tasks=TaskSpec(task_type="collect")
            )
        )
    assert await shop.app.apply() == []
