"""Whatever data comes, it is accepted and comes back from JSON as it was, or it is refused with InvalidValue."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from semel.errors import InvalidValue
from semel.triggers import ActivityDefinition, CronTriggerConfig, EventEnvelope
from semel.triggers.ids import event_run_id
from semel.triggers.problems import validate

plain = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=20)
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
likely = st.sampled_from(
    [
        "0 9 * * *",
        "@daily",
        "5m",
        30,
        "Europe/Paris",
        "2026-01-01T00:00:00Z",
        "9999-12-31T23:59:59-23:59",
        "2026-12-25",
        "skip",
        "catchup",
        "\x00",
        "\ud800",
        "é",
    ]
)
anything = likely | values
cron_triggers = st.fixed_dictionaries(
    {"type": st.just("cron"), "cron": st.just("0 9 * * *") | anything},
    optional={name: anything for name in CronTriggerConfig.model_fields if name not in ("type", "cron")},
)
other_triggers = st.one_of(
    st.fixed_dictionaries({"type": st.just("interval"), "every": anything}),
    st.fixed_dictionaries({"type": st.just("once"), "at": anything}),
    st.fixed_dictionaries({"type": st.just("event"), "types": anything}, optional={"where": anything}),
)


@given(cron_triggers | other_triggers | values, values)
def test_definitions(trigger: Any, argument: Any) -> None:
    tasks = {"task_type": "t", "arguments": {"x": argument}}
    try:
        definition = validate(ActivityDefinition, {"activity_id": "a", "triggers": trigger, "tasks": tasks}, "a")
    except InvalidValue:
        return
    assert ActivityDefinition.model_validate_json(definition.model_dump_json()) == definition


@given(
    st.fixed_dictionaries(
        {
            "specversion": st.just("1.0"),
            "id": st.text(min_size=1) | values,
            "source": st.text(min_size=1) | values,
            "type": st.just("invoice.paid") | anything,
        },
        optional=dict.fromkeys(
            ["time", "data", "data_base64", "subject", "datacontenttype", "dataschema", "traceparent"], anything
        ),
    )
)
def test_cloudevents(event: dict[str, Any]) -> None:
    try:
        envelope = EventEnvelope.from_cloudevent(event)
    except InvalidValue:
        return
    assert EventEnvelope.from_cloudevent(json.dumps(envelope.to_cloudevent())) == envelope
    assert event_run_id("a", envelope.event_id).startswith("activity-a:")
