"""What the router does not carry out is refused where it is declared, never ignored."""

from __future__ import annotations

import pytest

import semel
from semel.triggers import ActivityDefinition, EventTriggerConfig, TaskSpec
from tests.world import World


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("debounce", "5m"),
        ("batch", {"size": 10, "wait": "1m"}),
        ("singleton", "skip"),
        ("throttle", "10/min"),
        ("rate_limit", "10/min"),
        ("cancel_on", "order.cancelled"),
    ],
)
async def test_an_option_that_gathers_or_limits_events_is_refused(
    sqlite_world: World, option: str, value: object
) -> None:
    app = sqlite_world.app()

    @app.task(name="report")
    async def report() -> None: ...

    trigger = EventTriggerConfig.model_validate({"types": "order.paid", option: value})
    activity = ActivityDefinition(activity_id="orders", triggers=trigger, tasks=TaskSpec(task_type="report"))
    with pytest.raises(semel.InvalidValue, match=f"{option} of an event trigger"):
        app.activity(activity)
    assert list(await app.apply()) == []
    assert list(await app.events.subscriptions()) == []
