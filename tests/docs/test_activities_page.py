"""The page of activities lists every field of the models with its default, and every choice."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from semel.contract.durations import format_duration
from semel.triggers import (
    ActivityDefinition,
    CronTriggerConfig,
    EventEnvelope,
    EventTriggerConfig,
    IntervalTriggerConfig,
    OnceTriggerConfig,
    TaskSpec,
)
from semel.triggers.event_source import EventSource
from semel.triggers.flow_options import (
    BatchConfig,
    CancelOnConfig,
    DebounceConfig,
    RateLimitConfig,
    SingletonConfig,
    ThrottleConfig,
)
from semel.triggers.models import RecurringSchedule, Schedule
from semel.triggers.schemas import schema_of
from tests.docs.pages import read, table

SCHEDULES = set(Schedule.model_fields) - {"type"}
RECURRING = set(RecurringSchedule.model_fields) - {"type"} - SCHEDULES
TABLES: list[tuple[str, type[BaseModel], set[str]]] = [
    ("ActivityDefinition", ActivityDefinition, set()),
    ("TaskSpec", TaskSpec, set()),
    ("cron, interval, once", OnceTriggerConfig, {"type", "at"}),
    ("cron, interval", CronTriggerConfig, SCHEDULES | {"type", "cron", "seconds", "nonexistent", "repeated"}),
    ("cron, interval", IntervalTriggerConfig, SCHEDULES | {"type", "every", "after"}),
    ("CronTriggerConfig", CronTriggerConfig, SCHEDULES | RECURRING),
    ("IntervalTriggerConfig", IntervalTriggerConfig, SCHEDULES | RECURRING),
    ("OnceTriggerConfig", OnceTriggerConfig, SCHEDULES),
    ("EventTriggerConfig", EventTriggerConfig, set()),
    ("DebounceConfig", DebounceConfig, set()),
    ("BatchConfig", BatchConfig, set()),
    ("SingletonConfig", SingletonConfig, set()),
    ("ThrottleConfig, RateLimitConfig", ThrottleConfig, set()),
    ("ThrottleConfig, RateLimitConfig", RateLimitConfig, set()),
    ("CancelOnConfig", CancelOnConfig, set()),
    ("EventEnvelope", EventEnvelope, set()),
    ("EventSource", EventSource, set()),
]


def default_of(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case timedelta():
            return f'"{format_duration(value)}"'
        case str():
            return f'"{value}"'
        case tuple():
            return str(list(value))
    return "required" if value is PydanticUndefined else str(value)


@pytest.mark.parametrize(("head", "model", "elsewhere"), TABLES, ids=lambda one: getattr(one, "__name__", ""))
def test_every_field_is_on_the_page_with_its_default(head: str, model: type[BaseModel], elsewhere: set[str]) -> None:
    rows = table(read("docs/reference/activities.md"), head)[1:]
    fields = {name: field for name, field in model.model_fields.items() if name not in elsewhere}
    assert {row[0]: row[1] for row in rows} == {name: default_of(field) for name, field in fields.items()}


def test_every_choice_is_on_the_page() -> None:
    text = read("docs/reference/activities.md")
    choices = set(re.findall(r"'enum': \[([^\]]+)\]", str(schema_of(ActivityDefinition))))
    words = {word for some in choices for word in re.findall(r"'(\w+)'", some)}
    assert {"buffer_one", "compress", "both", "finish"} <= words
    assert [word for word in sorted(words) if f"`{word}`" not in text and f'`"{word}"`' not in text] == []
