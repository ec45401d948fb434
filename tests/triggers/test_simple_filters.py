"""What is decided without the library is what the library decides."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from semel.triggers import EventEnvelope
from semel.triggers.filters import FilterInput, compile_filter
from semel.triggers.simple_filters import decide_simple, read_simple

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 900, 901, 1.0, 900.0, "", "900", "EUR", "eur", "é", [], [900], {}, {"cents": 900},
    (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63),  # no event has a longer one
]  # fmt: skip
TERMS = [
    "data.a == 900",
    "data.a != 900",
    "data.a < 900",
    "event.data.a <= 900",
    "data.a > -1",
    "data.a >= 0",
    'data.a == "EUR"',
    "data.a != 'EUR'",
    "data.a == true",
    "data.a != false",
    "data.b.cents == 900",
]


def event(data: Any) -> EventEnvelope:
    return EventEnvelope(event_id="e", source="/s", type="t", data=data)


@pytest.mark.parametrize("where", [*TERMS, *(f"{one} && {other}" for one, other in product(TERMS[:3], TERMS[4:]))])
def test_a_simple_filter_decides_as_the_library_does(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simple = read_simple(where)
    assert simple is not None
    filter_ = compile_filter(where)
    monkeypatch.setattr("semel.triggers.filters.read_simple", lambda text: None)
    library = compile_filter(where)
    decided = 0
    for a, b in product(VALUES, ({"cents": 900}, {"cents": "900"}, {}, None, 5)):
        given = event({"a": a, "b": b})
        assert filter_.decide(given) == library.decide(given), (a, b)
        decided += decide_simple(simple, given.data) is not None
    assert decided, "some are decided without the library"
    for data in (None, "text", [1], {}, {"b": {"cents": 900}}):
        assert filter_.decide(event(data)) == library.decide(event(data)), data


@pytest.mark.parametrize(
    "where",
    [
        "data.a > 0 || data.b > 0", "!(data.a > 0)", "data.a < 'b'", "data.a == 1.5", "data.a == null", "0 < data.a",
        "data.a == 1 // && data.b == 2", 'data.a == "a && data.b == 1"', "type == 'a'", "data.size() == 1",
        "data['a'] == 1", 'data.a == r"b"', "data.a == 1u", 'data.a == "b\\n"', "data == 1",
    ],
)  # fmt: skip
def test_all_other_filters_are_left_to_the_library(where: str) -> None:
    assert read_simple(where) is None


def test_what_the_library_refuses_to_read_is_not_decided_here() -> None:
    """A text with a NUL character in it fails closed, and so does an event that is too large."""
    found = compile_filter("data.a == 1").decide(event({"a": 1, "b": "a\0b"}))
    assert (found.matched, found.problem) == (False, "it holds a NUL character")


def test_an_event_is_read_by_what_is_known_of_its_json_as_by_itself() -> None:
    """What was encoded before need not be encoded again to see whether filters can read it."""
    for data in ({"a": 1}, {"a": "x\0"}, [[[[1]]]], {"a": "x" * 5000}, "\\u0000"):
        one = event(data)
        encoded = one.model_dump_json().encode()
        assert FilterInput(one, encoded).problem == FilterInput(one).problem


def test_a_filter_reads_only_what_it_names() -> None:
    one = EventEnvelope(event_id="e", source="/s", type="t", subject="x", data={"a": [1]}, extensions={"tenant": "b"})
    for where in (
        "'x' == subject", "event.id == 'e'", "type == 't' && source == '/s'", "extensions.tenant == 'b'",
        "data.a[0] == 1", "dataschema == null", "datacontenttype.endsWith('json')",
    ):  # fmt: skip
        assert compile_filter(where).decide(one).matched, where
    found = compile_filter("time > timestamp('2020-01-01T00:00:00Z')").decide(one)
    assert (found.matched, found.problem) == (False, "the event has no time")
