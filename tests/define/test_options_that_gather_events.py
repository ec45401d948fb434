"""Options that gather or limit events are declared with an activity, and checked where they are declared."""

from __future__ import annotations

from typing import Any

import pytest

import semel
from semel.triggers import ActivityDefinition, EventTriggerConfig, TaskSpec
from tests.world import World

OPTIONS: list[tuple[str, Any]] = [
    ("debounce", "5m"),
    ("batch", {"size": 10, "wait": "1m"}),
    ("singleton", "skip"),
    ("throttle", "10/min"),
    ("rate_limit", {"rate": "10/min", "key": "data.user"}),
    ("cancel_on", ["order.cancelled", "order.void"]),
]


@pytest.mark.parametrize(("option", "value"), OPTIONS)
async def test_an_option_is_published_with_its_activity(sqlite_world: World, option: str, value: Any) -> None:
    app = sqlite_world.app()

    @app.on_event("order.paid", id="decorated", **{option: value})
    @app.task(name="report")
    async def report() -> None: ...

    trigger = EventTriggerConfig.model_validate({"types": "order.paid", option: value})
    app.activity(ActivityDefinition(activity_id="orders", triggers=trigger, tasks=TaskSpec(task_type="report")))
    await app.apply()
    assert [(one.id, one.flow) for one in await app.events.subscriptions()] == [
        ("decorated", (option,)),
        ("orders", (option,)),
    ]
    assert [str(change) for change in await app.apply()] == ["keep decorated", "keep orders"]


async def test_triggers_that_gather_differently_are_refused(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.task(name="report")
    async def report() -> None: ...

    triggers = [EventTriggerConfig(types="order.paid", debounce="5m"), EventTriggerConfig(types="order.void")]
    activity = ActivityDefinition(activity_id="orders", triggers=triggers, tasks=TaskSpec(task_type="report"))
    with pytest.raises(semel.InvalidValue, match="different values of debounce"):
        app.activity(activity)
    assert list(await app.apply()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"debounce": "5m", "batch": {"size": 2, "wait": "1m"}}, "one of them"),
        ({"debounce": "5m", "rate_limit": "1/min"}, "throttle"),
        ({"throttle": "fast"}, "10/min"),
        ({"debounce": {"wait": "5m", "key": "data."}}, "key"),
    ],
)
def test_options_that_do_not_fit_are_refused(sqlite_world: World, options: dict[str, Any], message: str) -> None:
    app = sqlite_world.app()
    with pytest.raises(semel.InvalidValue, match=message):
        app.on_event("order.paid", **options)


def test_two_parameters_for_all_events_are_refused(sqlite_world: World) -> None:
    app = sqlite_world.app()

    @app.task
    async def report(one: list[semel.EventEnvelope], two: list[semel.EventEnvelope]) -> None: ...

    with pytest.raises(semel.DefinitionError, match="two parameters of type list"):
        app.on_event("order.paid", debounce="5m")(report)
