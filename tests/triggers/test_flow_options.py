"""Options of event triggers over many events: what they take and refuse, and by which part events are grouped."""

from __future__ import annotations

from typing import Any

import pytest

from semel.contract.event_flow import Batch, Debounce, Singleton, StartLimit
from semel.errors import InvalidValue
from semel.triggers import EventEnvelope, EventTriggerConfig
from semel.triggers.event_keys import EventKey, KeyResult, check_event_key
from semel.triggers.problems import validate

MINUTE = 60_000_000


def trigger(**options: Any) -> EventTriggerConfig:
    return validate(EventTriggerConfig, {"types": "a", **options}, "trigger")


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({"debounce": "5m"}, Debounce(5 * MINUTE)),
        ({"debounce": {"wait": 60, "max_wait": "1h"}}, Debounce(MINUTE, 60 * MINUTE)),
        ({"debounce": "500ms"}, Debounce(500_000)),
        ({"debounce": 0.5}, Debounce(500_000)),
        ({"debounce": {"wait": "1.5s", "max_wait": 2.25}}, Debounce(1_500_000, 2_250_000)),
        ({"batch": {"size": 100, "wait": "1ms"}}, Batch(100, 1000)),
        ({"batch": {"size": 100, "wait": "1m"}}, Batch(100, MINUTE)),
        ({"singleton": "cancel"}, Singleton("cancel")),
        ({"singleton": {"mode": "skip", "key": "data.user"}}, Singleton("skip")),
        ({"throttle": "10/min"}, StartLimit(10, MINUTE)),
        ({"rate_limit": {"rate": "1000/hour"}}, StartLimit(1000, 60 * MINUTE)),
    ],
)
def test_an_option_is_a_word_or_a_table(options: dict[str, Any], policy: Any) -> None:
    made = trigger(**options)
    [name] = options
    assert made.flow_options == (name,)
    assert getattr(made, name).policy() == policy
    assert EventTriggerConfig.model_validate_json(made.model_dump_json()) == made


def test_an_event_cancels_by_its_type() -> None:
    assert trigger(cancel_on="order.cancelled").cancel_on == trigger(cancel_on={"types": ["order.cancelled"]}).cancel_on
    made = trigger(cancel_on=["a", "b"], debounce="1m", throttle="1/sec")
    assert made.flow_options == ("debounce", "throttle", "cancel_on")
    assert trigger().flow_options == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"debounce": "often"}, "debounce.wait: 'often' is not a duration"),
        ({"debounce": "0"}, "'0': use whole milliseconds, at least one"),
        ({"debounce": "1.5ms"}, "'1.5ms': use whole milliseconds"),
        ({"debounce": -0.5}, "-0.5 is out of bounds"),
        ({"batch": {"size": 2, "wait": 0.0001}}, "0.0001: use whole milliseconds"),
        ({"debounce": {"wait": "5m", "max_wait": "5m"}}, "max_wait='5m' is not longer than wait='5m'"),
        ({"debounce": {"max_wait": "5m"}}, "debounce.wait: it is missing"),
        ({"debounce": {"wait": "5m", "maxwait": "6m"}}, "Did you mean 'max_wait'?"),
        ({"batch": {"size": 1, "wait": "1m"}}, "batch.size"),
        ({"batch": {"size": 1001, "wait": "1m"}}, "batch.size"),
        ({"batch": 5}, "batch: 5 is not a table"),
        ({"singleton": "replace"}, "singleton.mode: 'replace': use 'skip' or 'cancel'"),
        ({"throttle": "fast"}, "throttle.rate: 'fast' is not a rate"),
        ({"throttle": "none"}, "'none': write from 1 to 1,000"),
        ({"rate_limit": "1001/min"}, "'1001/min': write from 1 to 1,000"),
        ({"rate_limit": 5}, "5: write from 1 to 1,000"),
        ({"cancel_on": []}, "cancel_on.types: give at least 1"),
        ({"cancel_on": {"types": "b", "where": "data.x >"}}, "cancel_on.where: 'data.x >', column"),
        ({"debounce": {"wait": "5m", "key": "user"}}, "there is no variable or function 'user'"),
        ({"debounce": {"wait": "5m", "key": ""}}, "give a path such as 'data.user_id'"),
        ({"debounce": "5m", "batch": {"size": 2, "wait": "1m"}}, "debounce and batch both gather events"),
        ({"throttle": "1/sec", "rate_limit": "1/sec"}, "throttle and rate_limit both decide when a run may start"),
        ({"debounce": "5m", "singleton": "skip"}, "debounce with singleton would drop all gathered events"),
        ({"batch": {"size": 2, "wait": "1m"}, "rate_limit": "1/sec"}, "batch with rate_limit would drop"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        trigger(**options)
    assert message in refused.value.message


EVENT = EventEnvelope(
    event_id="e-1",
    source="/shop",
    type="paid",
    time="2026-03-01T09:00:00Z",
    data={"user": {"id": 7, "name": "Ann", "vip": True, "score": 1.5, "note": None, "blank": ""}, "long": "x" * 256},
    extensions={"tenant": "acme"},
)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("data.user.id", "7"),
        ("event.data.user.name", "Ann"),
        ("data.user.vip", "true"),
        ("source", "/shop"),
        ("event.type", "paid"),
        ("id", "e-1"),
        ("extensions.tenant", "acme"),
        ("time", "2026-03-01T09:00:00+00:00"),
        ("extensions.tenant + '/' + string(data.user.id)", "acme/7"),
        ("data['user'].id", "7"),
        ("data.user.id > 5 ? 'high' : 'low'", "high"),
        ("data.user.vip && true", "true"),
    ],
)
def test_a_key_is_a_path_or_an_expression(text: str, key: str) -> None:
    assert EventKey(text).read(EVENT) == KeyResult(key)


def test_a_long_key_stands_by_its_hash() -> None:
    found = EventKey("data.long").read(EVENT).key
    assert found is not None
    assert found.startswith("sha256:")
    assert len(found) == 71


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("data.nobody", "key 'data.nobody': there is no field 'nobody'"),
        ("data.user.id.more", "there is no field 'more'"),
        ("subject", "it is null, not a text or a whole number"),
        ("data.user.note", "it is null"),
        ("data.user.score", "it is a float"),
        ("data.user", "it is a dict"),
        ("data.user.blank", "it is blank"),
        ("data['nobody'] + 'x'", "there is no field 'nobody'"),
        ("[data.user.id]", "it is a list"),
    ],
)
def test_an_event_without_the_key_has_a_problem(text: str, problem: str) -> None:
    result = EventKey(text).read(EVENT)
    assert result.key is None
    assert result.problem is not None
    assert problem in result.problem


def test_a_path_needs_no_further_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.triggers.event_keys.compile_expression", None)
    assert check_event_key("data.user.id") == "data.user.id"
    assert EventKey("data.user.id").read(EVENT) == KeyResult("7")


def test_a_rate_that_cannot_be_read_is_told_nothing_of_limits_to_lift() -> None:
    with pytest.raises(InvalidValue, match="'10 per min' is not a rate") as refused:
        validate(EventTriggerConfig, {"type": "event", "types": ["a"], "throttle": "10 per min"}, "on_event")
    assert "lifts" not in str(refused.value)
