"""`dedupe_key_strategy` and `misfire_policy`: the omitted one inherits, a mismatch is refused (S0-26, A12)."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from semel.errors import InvalidValue
from semel.triggers import ActivityDefinition, CronTriggerConfig
from semel.triggers.models import MisfirePolicy, RecurringSchedule
from semel.triggers.problems import validate

POLICIES: tuple[str, ...] = get_args(MisfirePolicy)
GIVEN: list[str | None] = [None, *POLICIES]


def activity(strategy: str | None, *policies: str | None) -> ActivityDefinition:
    triggers: list[dict[str, Any]] = [{"type": "cron", "cron": "@daily", "misfire_policy": one} for one in policies]
    for one in triggers:
        if one["misfire_policy"] is None:
            del one["misfire_policy"]
    data = {"activity_id": "a", "triggers": triggers, "tasks": [{"task_type": "t"}]}
    return validate(ActivityDefinition, data if strategy is None else {**data, "dedupe_key_strategy": strategy}, "a")


@pytest.mark.parametrize(("strategy", "one", "other"), list(product(GIVEN, GIVEN, GIVEN)))
def test_both_fields_agree_or_are_refused(strategy: str | None, one: str | None, other: str | None) -> None:
    said = {policy for policy in (strategy, one, other) if policy is not None}
    if len(said) > 1:
        with pytest.raises(InvalidValue, match=r"does not match misfire_policy|have different misfire policies"):
            activity(strategy, one, other)
        return
    definition = activity(strategy, one, other)
    expected = said.pop() if said else "skip"
    assert definition.dedupe_key_strategy == expected
    assert [trigger.misfire_policy for trigger in definition.triggers if isinstance(trigger, RecurringSchedule)] == [
        expected,
        expected,
    ]


def test_what_was_inherited_is_stored() -> None:
    definition = activity("compress", None)
    stored = definition.model_dump(mode="json")
    assert stored["triggers"][0]["misfire_policy"] == "compress"
    assert ActivityDefinition.model_validate(stored) == definition


def test_an_inherited_policy_is_checked_against_the_trigger() -> None:
    with pytest.raises(InvalidValue, match="max_catchup=3 goes with misfire_policy='catchup', not with 'compress'"):
        validate(
            ActivityDefinition,
            {
                "activity_id": "a",
                "dedupe_key_strategy": "compress",
                "triggers": [{"type": "cron", "cron": "@daily", "max_catchup": 3}],
                "tasks": [{"task_type": "t"}],
            },
            "a",
        )


def test_a_trigger_that_is_shared_by_two_activities_is_not_changed() -> None:
    daily = CronTriggerConfig(cron="@daily")
    for strategy in POLICIES:
        data = {"activity_id": "a", "triggers": [daily], "tasks": [{"task_type": "t"}], "dedupe_key_strategy": strategy}
        assert ActivityDefinition.model_validate(data).triggers[0].model_dump()["misfire_policy"] == strategy
    assert daily.misfire_policy == "skip"
