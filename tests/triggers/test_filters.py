"""A filter decides by what an event says; what it cannot read does not match, and it says why."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.errors import ConfigError, InvalidValue
from semel.triggers import EventEnvelope, EventTriggerConfig, filters
from semel.triggers.filters import VARIABLES, FilterInput, FilterResult, compile_filter


def event(data: Any = None, **attributes: Any) -> EventEnvelope:
    return EventEnvelope(
        **{"event_id": "evt-1", "source": "/shop", "type": "invoice.paid", "data": data, **attributes},
    )


PAID = {
    "cents": 500,
    "user": {"id": 7, "plan": "pro"},
    "lines": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}],
    "note": None,
}


@pytest.mark.parametrize(
    "where",
    [
        "data.cents > 0",
        "data.cents == 500.0",
        "data.user.plan in ['pro', 'team']",
        "data['user']['id'] == 7",
        "data.lines.exists(line, line.sku == 'b')",
        "data.lines.all(line, line.n > 0)",
        "data.lines.exists_one(line, line.n > 1)",
        "data.note == null",
        "!has(data.refund)",
        "has(data.refund) || data.cents < 1000",
        "data.refund > 0 || data.cents > 0",
        "type == 'invoice.paid' && event.type.startsWith('invoice.')",
        "source == '/shop' && id == 'evt-1' && event.id == 'evt-1'",
        "subject == 'order-1'",
        "time >= timestamp('2026-03-01T00:00:00Z') && time.getFullYear() == 2026",
        "time == timestamp('2026-03-01T08:00:00.000001Z')",
        "datacontenttype == 'application/json' && dataschema == null",
        "extensions.attempt == 2 && extensions['tenant'] == 'acme'",
        "type(data.cents) == int",
        "data.user.plan.matches('^(pro|team)$')",
    ],
)
def test_events_match_by_what_they_say(where: str) -> None:
    paid = event(
        PAID,
        subject="order-1",
        time="2026-03-01T09:00:00.000001+01:00",
        extensions={"attempt": 2, "tenant": "acme"},
    )
    assert compile_filter(where).decide(paid) == FilterResult(True)
    assert compile_filter(f"!({where})").decide(paid) == FilterResult(False)


@pytest.mark.parametrize(
    ("where", "data", "problem"),
    [
        ("data.cents > 0", {}, "there is no field 'cents'"),
        ("data.cents", {}, "there is no field 'cents'"),
        ("!(data.cents > 0)", {}, "there is no field 'cents'"),
        ("data.cents != 1", {}, "there is no field 'cents'"),
        ("data.user.id == 1", {"user": {}}, "there is no field 'id'"),
        ("data.cents > 0", None, "it reads a field of a value that has no fields"),
        ("data.cents > 0", {"cents": "500"}, "these types do not go together: _>_(string, int64)"),
        ("data.cents", {"cents": 1}, "the filter gives a number, not true or false"),
        ("data.paid", {"paid": "true"}, "the filter gives a text, not true or false"),
        ("data.lines[3] == 1", {"lines": [1]}, "index=3"),
        ("data.cents / data.n > 1", {"cents": 1, "n": 0}, "divide by zero"),
        ("int(data.cents) > 1", {"cents": "many"}, "cannot convert string to int"),
        ("data.cents > 1", {"cents": 1 << 70}, "out of range"),
        ("time > timestamp('2026-03-01T00:00:00Z')", {}, "the event has no time"),
        ("data.all(n, n >= 0)", list(range(10_001)), "it goes through more than 10,000 entries"),
        # The library reads a text up to its first NUL: this would match.
        ("data.role == 'guest'", {"role": "guest\0admin"}, "it holds a NUL character"),
        ("data.role.x == 'guest'", {"role": "guest"}, "it reads a field of a value that has no fields"),
        ("data.role == 'guest'", {"role": "guest", "deep": [{"\0": 1}]}, "it holds a NUL character"),
    ],
)
def test_a_filter_that_cannot_be_evaluated_does_not_match_and_says_why(where: str, data: Any, problem: str) -> None:
    result = compile_filter(where).decide(event(data))
    assert not result.matched
    assert result.problem is not None
    assert problem in result.problem


def test_a_backslash_before_u0000_is_no_nul() -> None:
    assert compile_filter(r"data.path == 'C:\\u0000'").decide(event({"path": r"C:\u0000"})) == FilterResult(True)


def test_data_that_is_nested_too_deeply_does_not_reach_the_library() -> None:
    """At 100,000 levels it would end the process with a segmentation fault."""
    deep: Any = 1
    for level in range(100_000):
        deep = [deep] if level % 2 else {"a": deep}
        if level in (65, 200, 99_999):
            found = compile_filter("size(data) > 0").decide(event().model_copy(update={"data": deep}))
            assert found == FilterResult(False, "its data is nested deeper than 64 levels")
    while isinstance(deep, list | dict):  # freed from the outside, for Python's own sake
        deep = deep[0] if isinstance(deep, list) else deep["a"]


def test_data_over_a_mebibyte_is_not_read() -> None:
    result = compile_filter("size(data) > 0").decide(event("x" * (1 << 20)))
    assert result == FilterResult(False, "its data takes 1,048,583 bytes as JSON: this filter reads at most 1,048,576")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("data.cents > 0 &&", "where='data.cents > 0 &&', column 18: Syntax error"),
        ("data.cents >\n\n> 1", "line 3, column 1: Syntax error"),
        ("cents > 0", "column 1: there is no variable or function 'cents'. The variables are data, type, source"),
        ("__import__('os').system('true')", "there is no variable or function '__import__'"),
        ("data.name.lower() == 'a'", "there is no variable or function 'lower'"),
        ("1 + 1", "gives a value of the type int, not true or false"),
        ("type", "gives a value of the type string"),
        ("data.cents > 0 || 'yes'", "column 16: found no matching overload for '_||_'"),
        ("source > 1", "column 8: found no matching overload"),
        (" ", "is blank"),
        ("", "is blank"),
        ("'\ud800' == type", "lone surrogate at position 1"),
        ("(" * 100 + "true" + ")" * 100, "is nested too deeply"),
        ("data" + ".a" * 100, "is nested too deeply"),
        ("true" + " && true" * 1000, "has 8,004 characters: use at most 4,000"),
    ],
)
def test_a_filter_that_cannot_work_is_refused_where_it_is_declared(where: str, message: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        compile_filter(where)
    assert message in refused.value.message
    assert refused.value.message.startswith("where=")


def test_something_else_than_a_text_is_refused() -> None:
    with pytest.raises(InvalidValue, match="where=5 is a int"):
        compile_filter(5)  # pyright: ignore[reportArgumentType]


def test_a_trigger_refuses_a_bad_filter() -> None:
    assert EventTriggerConfig(types="a", where="data.cents > 0").where == "data.cents > 0"
    with pytest.raises(ValueError, match=r"'cents >', column 8: Syntax error"):
        EventTriggerConfig(types="a", where="cents >")


def test_without_the_extra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    filters._cel.cache_clear()
    filters._environment.cache_clear()
    try:
        monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
        with pytest.raises(ConfigError, match=r"pip install 'semel\[cel\]'"):
            compile_filter("data.cents > 0")
        with pytest.raises(ValueError, match=r"pip install 'semel\[cel\]'"):
            EventTriggerConfig(types="a", where="data.cents > 0")
        assert EventTriggerConfig(types="a").where is None
    finally:
        filters._cel.cache_clear()
        filters._environment.cache_clear()


def test_an_event_is_converted_once_for_many_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    given_event = FilterInput(event(PAID))
    found = [compile_filter(f"data.cents > {n * 100}").decide(given_event).matched for n in range(10)]
    assert found == [True] * 5 + [False] * 5
    unreadable = FilterInput(event("a\0b"))
    assert compile_filter("true").decide(unreadable) == FilterResult(False, "it holds a NUL character")


def test_threads_share_a_filter() -> None:
    shared = compile_filter("data.lines.exists(line, line.n == 2) && data.cents > 0")
    found: list[bool] = []

    def decide() -> None:
        found.extend(shared.decide(event({**PAID, "cents": n % 2})).matched for n in range(500))

    threads = [threading.Thread(target=decide) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2000
    assert sum(found) == 1000


def test_the_documented_variables_are_those_that_there_are() -> None:
    for name in VARIABLES:
        compile_filter(f"dyn({name}) == dyn(event.{name})")
        assert f"    {name}" in str(filters.__doc__) or f", {name}" in str(filters.__doc__)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
@settings(max_examples=200)
def test_no_data_makes_a_filter_raise(data: Any) -> None:
    for where in (
        "data.a.b == 1",
        "data == data",
        "size(data) >= 0",
        "data.exists(x, x == 1)",
        "data in [1, 'a', null]",
    ):
        result = compile_filter(where).decide(event(data))
        assert not (result.matched and result.problem)


@given(st.text(alphabet="data.()[]{}'\"!&|<>=+-*/%?:, 019abx\n\\", max_size=60))
@settings(max_examples=300)
def test_no_text_makes_the_compiler_raise_anything_but_invalid_value(where: str) -> None:
    try:
        compiled = compile_filter(where)
    except InvalidValue:
        return
    assert isinstance(compiled.decide(event(PAID)), FilterResult)
