"""Definitions of activities and triggers: what is accepted, how it is stored, and what is refused in which words."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, get_args, get_type_hints
from uuid import UUID

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from semel.contract.slot_policy import Misfire, Overlap, SlotPolicy
from semel.contract.slots import ScheduleState, due
from semel.errors import InvalidValue
from semel.triggers import (
    ActivityDefinition,
    CronTriggerConfig,
    EventTriggerConfig,
    IntervalTriggerConfig,
    OnceTriggerConfig,
    TaskSpec,
)
from semel.triggers.ids import slot_run_id
from semel.triggers.models import RecurringSchedule, Schedule, Trigger
from semel.triggers.options import MisfirePolicy, OverlapPolicy, RecurringOptions, ScheduleOptions
from semel.triggers.problems import validate

TRIGGER: TypeAdapter[Trigger] = TypeAdapter(Trigger)
REPORT = {"task_type": "send_report"}
DAILY = {"type": "cron", "cron": "0 9 * * *"}


def activity(**fields: Any) -> ActivityDefinition:
    return validate(ActivityDefinition, {"activity_id": "a", "triggers": [DAILY], "tasks": [REPORT], **fields}, "a")


def refusal(**fields: Any) -> str:
    with pytest.raises(InvalidValue) as caught:
        activity(**fields)
    return caught.value.message


def test_the_defaults_are_overlap_skip_and_no_catch_up() -> None:
    """As the source document has them (S1-16, S1-63)."""
    definition = activity()
    (daily,) = definition.triggers
    assert isinstance(daily, CronTriggerConfig)
    assert definition.dedupe_key_strategy == "skip"
    assert (daily.overlap, daily.misfire_policy, daily.max_catchup) == ("skip", "skip", 10)
    assert (daily.timezone, daily.nonexistent, daily.repeated) == ("UTC", "shift", "first")
    assert (daily.grace, daily.jitter, daily.seconds) == (None, timedelta(0), False)
    assert OnceTriggerConfig(at="2026-03-01T09:00:00Z").overlap == "skip"
    assert IntervalTriggerConfig(every="5m").after == "start"


FULL = {
    "activity_id": UUID("550e8400-e29b-41d4-a716-446655440000"),
    "description": "Sends the report.",
    "dedupe_key_strategy": "catchup",
    "triggers": [
        {
            "type": "cron",
            "cron": ["0 9 * * MON-FRI", "30 6 1 * *"],
            "timezone": "Europe/Paris",
            "max_catchup": 3,
            "grace": "10m",
            "overlap": "buffer_one",
            "jitter": 30,
            "start_at": datetime(2026, 3, 1, tzinfo=UTC),
            "end_at": "2027-03-01T00:00:00+01:00",
            "start_deadline": "1h",
            "exclude": [date(2026, 12, 25), "2026-12-26", "* 12 * * *"],
            "nonexistent": "skip",
            "repeated": "both",
            "pause_after_failures": 5,
            "finish_by": "2h",
        },
        {"type": "cron", "cron": "*/10 * * * * *", "seconds": True},
        {"type": "interval", "every": "5m", "exclude": "2026-12-25"},
        {"type": "once", "at": ["2026-03-01T09:00:00Z", "2026-03-01T10:00:00+01:00"]},
        {"type": "event", "types": ["invoice.*", "refund.paid"], "source": "/shop", "where": "data.cents > 0"},
    ],
    "tasks": [
        REPORT,
        {"task_type": "archive", "arguments": {"days": 30, "tags": ["a", None]}, "queue": "slow", "priority": -1},
    ],
}


def test_every_field_is_read_and_comes_back_from_json_and_from_python() -> None:
    definition = ActivityDefinition.model_validate(FULL)
    cron = definition.triggers[0]
    assert isinstance(cron, CronTriggerConfig)
    assert cron.start_at == datetime(2026, 3, 1, tzinfo=UTC)
    assert cron.end_at == datetime(2027, 2, 28, 23, tzinfo=UTC)
    assert cron.end_at.utcoffset() == timedelta(0)
    assert (cron.grace, cron.jitter, cron.finish_by) == (
        timedelta(minutes=10),
        timedelta(seconds=30),
        timedelta(hours=2),
    )
    assert cron.exclude == (date(2026, 12, 25), date(2026, 12, 26), "* 12 * * *")
    assert definition.activity_id == "550e8400-e29b-41d4-a716-446655440000"
    again = [
        ActivityDefinition.model_validate_json(definition.model_dump_json()),
        ActivityDefinition.model_validate_json(definition.model_dump_json(exclude_none=True)),
        ActivityDefinition.model_validate(definition.model_dump()),
    ]
    assert again == [definition] * 3


def test_durations_and_times_are_stored_as_people_write_them() -> None:
    stored = ActivityDefinition.model_validate(FULL).model_dump(mode="json")["triggers"][0]
    assert (stored["grace"], stored["jitter"], stored["start_at"]) == ("10m", "30s", "2026-03-01T00:00:00+00:00")
    assert stored["exclude"] == ["2026-12-25", "2026-12-26", "* 12 * * *"]


def test_one_value_stands_for_a_list_of_it() -> None:
    assert activity(triggers=DAILY, tasks=REPORT) == activity()
    assert CronTriggerConfig(cron="@daily") == CronTriggerConfig(cron=["@daily"])


def test_definitions_do_not_change() -> None:
    definition = activity()
    with pytest.raises(ValidationError, match="frozen"):
        definition.description = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (DAILY, CronTriggerConfig),
        ({"type": "interval", "every": 60}, IntervalTriggerConfig),
        ({"type": "once", "at": "2026-03-01T09:00:00Z"}, OnceTriggerConfig),
        ({"type": "event", "types": "a"}, EventTriggerConfig),
    ],
)
def test_the_type_says_which_trigger_it_is(data: dict[str, Any], kind: type) -> None:
    assert type(TRIGGER.validate_python(data)) is kind


def test_a_fraction_of_a_second_is_rounded_up() -> None:
    """A one-shot never runs before its time."""
    (at,) = OnceTriggerConfig(at=datetime(2026, 3, 1, 9, 0, 0, 1, tzinfo=UTC)).at
    assert at == datetime(2026, 3, 1, 9, 0, 1, tzinfo=UTC)


def test_triggers_give_their_policies() -> None:
    daily = CronTriggerConfig(
        cron="@daily", misfire_policy="catchup", max_catchup=3, grace="0", overlap="buffer_all", max_buffer=7
    )
    assert daily.policy() == SlotPolicy(
        misfire=Misfire.CATCHUP, max_catchup=3, grace=timedelta(0), overlap=Overlap.BUFFER_ALL, max_buffer=7
    )
    once = OnceTriggerConfig(at="2026-03-01T09:00:00Z", overlap="cancel_other", start_deadline="1h")
    assert once.policy() == SlotPolicy(overlap=Overlap.CANCEL_OTHER, start_deadline=timedelta(hours=1))
    assert IntervalTriggerConfig(every=60).policy() == SlotPolicy()


@pytest.mark.parametrize(
    ("words", "kind"), [(MisfirePolicy, Misfire), (OverlapPolicy, Overlap)], ids=["misfire", "overlap"]
)
def test_the_models_have_the_words_of_the_contract(words: Any, kind: type[StrEnum]) -> None:
    assert list(get_args(words)) == [one.value for one in kind]


@pytest.mark.parametrize(("options", "model"), [(ScheduleOptions, Schedule), (RecurringOptions, RecurringSchedule)])
def test_the_options_are_the_fields_of_the_models(options: Any, model: type[BaseModel]) -> None:
    assert set(get_type_hints(options)) == set(model.model_fields) - {"type"}


def test_triggers_give_their_slots() -> None:
    nine = datetime(2026, 3, 1, 8, tzinfo=UTC)
    daily = CronTriggerConfig(cron="0 9 * * *", timezone="Europe/Paris", exclude="2026-03-02", jitter="5m")
    slots = daily.timing("a").slots(datetime(2026, 3, 1, tzinfo=UTC))
    assert [next(slots), next(slots)] == [nine, nine + timedelta(days=2)]
    often = IntervalTriggerConfig(every="5m", start_at="2026-03-01T08:00:00Z", end_at="2026-03-01T08:10:00Z")
    assert list(often.timing("a").slots(datetime(2026, 1, 1, tzinfo=UTC))) == [nine, nine + timedelta(minutes=5)]
    once = OnceTriggerConfig(at=["2026-03-01T08:00:00Z", "2026-03-01T09:00:00+01:00"])
    assert list(once.timing("a").slots(datetime(2026, 1, 1, tzinfo=UTC))) == [nine]


def test_from_a_definition_to_the_id_of_its_run() -> None:
    """The example of the source document (S0-10), by way of the decision about slots."""
    definition = activity(activity_id="550e8400-e29b-41d4-a716-446655440000")
    (daily,) = definition.triggers
    assert isinstance(daily, CronTriggerConfig)
    nine = datetime(2026, 3, 1, 9, tzinfo=UTC)
    state = ScheduleState(cursor=nine - timedelta(days=1))
    tick = due(daily.timing(definition.activity_id), daily.policy(), state, nine + timedelta(seconds=1))
    assert [slot_run_id(definition.activity_id, run.slot) for run in tick.start] == [
        "activity-550e8400-e29b-41d4-a716-446655440000:2026-03-01T09:00:00+00:00"
    ]


CRON = {"type": "cron", "cron": "0 9 * * *"}


@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({**CRON, "timezon": "UTC"}, "a: triggers[0].timezon: there is no such field. Did you mean 'timezone'?"),
        ({**CRON, "timezone": "Europe/Pari"}, "triggers[0].timezone: 'Europe/Pari' is not an IANA time zone. Did you"),
        ({**CRON, "grace": "5x"}, "triggers[0].grace: '5x' is not a duration. Write it like"),
        ({**CRON, "grace": "500ms"}, "triggers[0].grace: '500ms': use whole seconds."),
        ({**CRON, "jitter": -1}, "triggers[0].jitter: -1 is out of bounds"),
        ({**CRON, "start_deadline": "0"}, "triggers[0].start_deadline: '0': use at least a second."),
        ({**CRON, "start_at": "2026-03-01T09:00:00"}, "'2026-03-01T09:00:00' has no time zone: add its offset"),
        ({**CRON, "start_at": datetime(2026, 3, 1)}, "'2026-03-01T00:00:00' has no time zone"),  # noqa: DTZ001
        ({**CRON, "start_at": "soon"}, "triggers[0].start_at: 'soon' is not a time: write it like"),
        ({**CRON, "start_at": 1772355600}, "triggers[0].start_at: 1772355600 is not a datetime"),
        ({**CRON, "start_at": "0001-01-01T00:00:00+01:00"}, "is out of bounds in UTC"),
        ({**CRON, "start_at": "2026-03-02T00:00:00Z", "end_at": "2026-03-01T00:00:00Z"}, "is not after start_at="),
        ({**CRON, "overlap": "alow"}, "triggers[0].overlap: 'alow': use 'skip', 'buffer_one'"),
        ({**CRON, "max_catchup": "5"}, "triggers[0].max_catchup: '5' is not a whole number."),
        ({**CRON, "max_catchup": True}, "triggers[0].max_catchup: True is not a whole number."),
        ({**CRON, "max_catchup": 5, "misfire_policy": "skip"}, "max_catchup=5 goes with misfire_policy='catchup'"),
        ({**CRON, "max_buffer": 0}, "max_buffer: Input should be greater than or equal to 1"),
        ({**CRON, "max_buffer": 1001}, "max_buffer: Input should be less than or equal to 1000"),
        ({**CRON, "pause_after_failures": 0}, "pause_after_failures: Input should be greater than or equal to 1"),
        ({**CRON, "seconds": 1}, "triggers[0].seconds: 1 is not true or false."),
        ({**CRON, "exclude": [5]}, "triggers[0].exclude[0]: 5: give a date, such as '2026-12-25', or a cron"),
        ({**CRON, "exclude": ["2026-13-01"]}, "triggers[0].exclude[0]: '2026-13-01' is not a date"),
        ({**CRON, "exclude": datetime(2026, 3, 1, tzinfo=UTC)}, "give a date"),
        ({**CRON, "exclude": "* * * *"}, "triggers[0]: exclude='* * * *' has 4 fields."),
        ({"type": "cron", "cron": "0 9 * *"}, "triggers[0]: cron='0 9 * *' has 4 fields."),
        ({"type": "cron", "cron": []}, "triggers[0].cron: give at least 1."),
        ({"type": "cron", "cron": [1]}, "triggers[0].cron[0]: 1 is not a text."),
        ({"type": "cron", "cron": ["@daily"] * 101}, "triggers[0].cron: has 101 entries: give at most 100."),
        ({"type": "cron"}, "triggers[0].cron: it is missing."),
        ({"type": "corn"}, "triggers[0]: type='corn': use one of 'cron', 'interval', 'once', 'event'."),
        ({"cron": "@daily"}, "triggers[0]: it has no type: say type='cron', 'interval', 'once' or 'event'."),
        ("@daily", "triggers[0]: '@daily' is not a table."),
        ({"type": "interval", "every": 0}, "triggers[0].every: 0: use at least a second."),
        ({"type": "interval", "every": 60, "cron": "@daily"}, "[0].cron: there is no such field. Known are:"),
        ({"type": "interval", "every": 60, "after": "finish", "overlap": "allow_all"}, "its runs never overlap."),
        ({"type": "once", "at": "2026-03-01"}, "'2026-03-01T00:00:00' has no time zone"),
        ({"type": "once", "at": []}, "triggers[0].at: give at least 1."),
        ({"type": "event", "types": ""}, "triggers[0].types[0]: '' is blank"),
        ({"type": "event", "types": "a", "where": ""}, "triggers[0].where: String should have at least 1"),
        ({"type": "event", "types": "a", "where": "x" * 4001}, "triggers[0].where: String should have at most 4000"),
        ({"type": "event", "types": "a", "misfire_policy": "skip"}, "[0].misfire_policy: there is no such field."),
    ],
)
def test_what_is_wrong_with_a_trigger_is_said(trigger: Any, words: str) -> None:
    assert words in refusal(triggers=[trigger])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"activity_id": "a b"}, "a: activity_id: 'a b': use a UUID, or 1 to 100 letters"),
        ({"activity_id": "a:evt"}, "the part 'evt' stands for something else"),
        ({"activity_id": "a:b", "triggers": {"type": "event", "types": "x"}}, "so it cannot have event triggers"),
        ({"description": "x" * 1001}, "a: description: "),
        ({"triggers": []}, "a: triggers: give at least 1."),
        ({"tasks": []}, "a: tasks: give at least 1."),
        ({"tasks": "send_report"}, "a: tasks[0]: 'send_report' is not a table."),
        ({"tasks": {"task_type": "a:b"}}, "a: tasks[0].task_type: 'a:b': use 1 to 200 letters"),
        ({"tasks": {"task_typ": "a"}}, "tasks[0].task_typ: there is no such field. Did you mean 'task_type'?"),
        ({"tasks": {**REPORT, "arguments": [1]}}, "a: tasks[0].arguments: [1] is not a table."),
        ({"tasks": {**REPORT, "arguments": {"on": date(2026, 3, 1)}}}, "arguments.on: 2026-03-01 is a date, not"),
        ({"tasks": {**REPORT, "arguments": {"x": float("nan")}}}, "tasks[0].arguments.x"),
        ({"tasks": {**REPORT, "queue": "a b"}}, "a: tasks[0].queue: 'a b': use 1 to 100 letters"),
        ({"tasks": {**REPORT, "priority": 1.5}}, "a: tasks[0].priority: "),
        ({"dedupe_key_strategy": "catch"}, "a: dedupe_key_strategy: 'catch': use 'skip', 'catchup' or 'compress'."),
        ({"dedupe_strategy": "skip"}, "there is no such field. Did you mean 'dedupe_key_strategy'?"),
    ],
)
def test_what_is_wrong_with_an_activity_is_said(fields: dict[str, Any], words: str) -> None:
    assert words in refusal(**fields)


def test_everything_that_is_wrong_is_said_at_once() -> None:
    message = refusal(tasks=[{"task_type": "a:b"}], triggers=[{**CRON, "grace": "5x"}, {"type": "corn"}])
    assert [place in message for place in ("tasks[0].task_type", "triggers[0].grace", "triggers[1]")] == [True] * 3


def test_definitions_are_written_in_code_too() -> None:
    definition = ActivityDefinition(
        activity_id="a",
        triggers=(CronTriggerConfig(cron=("0 9 * * *",)),),
        tasks=(TaskSpec(task_type="send_report"),),
    )
    assert definition == activity()
    with pytest.raises(ValidationError, match="'Mars' is not an IANA time zone"):
        CronTriggerConfig(cron="@daily", timezone="Mars")
