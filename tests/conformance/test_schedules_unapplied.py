"""A worker says at its start which schedules of its app were never applied, or differ."""

from __future__ import annotations

import logging

import pytest

import semel
from semel.contract.runs import ChangeKind
from semel.triggers import ActivityDefinition, CronTriggerConfig, TaskSpec
from tests.world import World


def declare(app: semel.App, *ids: str, cron: str = "0 9 * * *") -> None:
    @app.task(name="digest")
    async def digest() -> None: ...

    for id in ids:
        app.on_schedule(cron, id=id)(digest)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "semel.schedules"]


async def test_a_worker_names_what_was_never_applied_and_what_differs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old, app = world.app(), world.app()
    declare(old, "same", "other")
    await old.apply()
    declare(app, "same", "new")
    app.on_schedule("0 10 * * *", id="other")(app.tasks.task("digest"))
    with caplog.at_level(logging.WARNING, "semel.schedules"):
        async with world.worker(app):
            pass
        (told,) = warnings(caplog)
        assert "never applied, and will not fire: new; not as the code declares them: other. " in told
        assert told.endswith("Publish them with: semel apply MODULE:APP")
        caplog.clear()
        await app.apply()
        async with world.worker(app):
            pass
        assert warnings(caplog) == []
    assert await app.schedules.unapplied() == []


async def test_a_worker_of_an_app_that_declares_none_says_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    app = world.app()

    @app.task
    async def digest() -> None: ...

    with caplog.at_level(logging.WARNING, "semel.schedules"):
        async with world.worker(app):
            pass
    assert warnings(caplog) == []


async def test_a_plan_names_what_is_not_declared_any_more_and_calls_a_rename_out(world: World) -> None:
    old, app = world.app(), world.app()
    declare(old, "nightly")
    await old.apply()
    await old.schedules.put("of-somebody", old.tasks.task("digest"), every="1h")
    declare(app, "at-night")
    plan = await app.apply(dry_run=True)
    assert [(one.kind, one.id) for one in plan] == [(ChangeKind.CREATE, "at-night"), (ChangeKind.ORPHAN, "nightly")]
    assert "runs the same function as nightly" in plan[0].detail
    assert "goes on firing beside it" in plan[0].detail
    plan = await app.apply(dry_run=True, prune=True)
    assert [(one.kind, one.id) for one in plan] == [(ChangeKind.CREATE, "at-night"), (ChangeKind.DELETE, "nightly")]
    assert "goes on firing beside it" not in plan[0].detail
    assert [one.id for one in await app.schedules.list()] == ["nightly", "of-somebody"], "a plan changes nothing"


async def test_arguments_by_name_leave_the_run_out(world: World) -> None:
    app = world.app()

    @app.task
    async def report(run: semel.Run, city: str, *, loud: bool = False) -> None: ...

    await app.schedules.put("x", app.schedules.call(report, city="Paris", loud=True), every="1h")
    definition = await (await app.engine.schedules()).definition("x")
    assert definition is not None
    assert (definition.payload, definition.run_parameter) == (b'{"city":"Paris","loud":true}', "run")
    with pytest.raises(semel.InvalidValue, match="run is the Run"):
        app.schedules.call(report, city="Paris", run=None)


async def test_activities_with_several_tasks_are_no_rename_unless_their_tasks_are_the_same(world: World) -> None:
    trigger = CronTriggerConfig(cron="0 9 * * *")

    def declare_activity(id: str, *tasks: str) -> semel.App:
        app = world.app()
        for name in ("load", "send", "sweep"):
            app.task(name=name)(_nothing)
        specs = [TaskSpec(task_type=name) for name in tasks]
        app.activity(ActivityDefinition(activity_id=id, triggers=[trigger], tasks=specs))
        return app

    await declare_activity("nightly", "load", "send").apply()
    (other, _) = await declare_activity("at-night", "load", "sweep").apply(dry_run=True)
    assert (other.kind, other.detail) == (ChangeKind.CREATE, "")
    (same, _) = await declare_activity("at-night", "load", "send").apply(dry_run=True)
    assert "runs the same function as nightly" in same.detail


async def _nothing() -> None: ...
