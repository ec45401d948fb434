"""Is it the same request?"""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from semel.codec import MAX_PAYLOAD, Shape
from semel.contract.fingerprint import ABSENT, differences, fingerprint

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip
inputs = st.dictionaries(st.text("abc", min_size=1, max_size=3), json_values, max_size=5)


def canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def charge(order: str, cents: int, *, currency: str = "EUR") -> None: ...


SHAPE = Shape(charge, "charge")


def asked(*args: Any, **kwargs: Any) -> bytes:
    return SHAPE.encode_input(SHAPE.bind(args, kwargs), MAX_PAYLOAD)


def test_the_format_is_what_it_was_in_the_first_release() -> None:
    payload = asked("o-1", 9900)
    assert payload == b'{"cents":9900,"currency":"EUR","order":"o-1"}'
    assert fingerprint("charge", payload).hex() == "e4ada9426ac7f028dc82f161b21295be"


def test_positional_keyword_and_default_are_the_same_request() -> None:
    first = asked("o-1", 9900)
    assert first == asked("o-1", cents=9900)
    assert first == asked(cents=9900, order="o-1")
    assert first == asked("o-1", 9900, currency="EUR")
    assert first != asked("o-1", 9900, currency="USD")


@given(inputs, inputs, st.sampled_from("ab"), st.sampled_from("ab"))
def test_it_is_the_same_exactly_for_the_same_name_and_input(
    one: dict[str, Any], other: dict[str, Any], name: str, other_name: str
) -> None:
    same = name == other_name and canonical(one) == canonical(other)
    left, right = fingerprint(name, canonical(one)), fingerprint(other_name, canonical(other))
    assert len(left) == 16
    assert (left == right) == same


def test_name_and_input_do_not_run_into_each_other() -> None:
    assert fingerprint("a", b"bc") != fingerprint("ab", b"c")


@given(inputs, inputs)
def test_a_difference_is_found_exactly_where_there_is_one(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = differences(canonical(one), canonical(other))
    assert bool(found) == (canonical(one) != canonical(other))
    assert len(found) <= 8


def test_differences_are_named_by_path_with_both_values() -> None:
    stored = {"order": {"id": "o-1", "lines": [1, 2, 3]}, "cents": 9900, "old": 1, "same": [1]}
    offered = {"order": {"id": "o-2", "lines": [1, 5, 3]}, "cents": "9900", "new": None, "same": [1]}
    assert differences(canonical(stored), canonical(offered)) == {
        "cents": (9900, "9900"),
        "new": (ABSENT, None),
        "old": (1, ABSENT),
        "order.id": ("o-1", "o-2"),
        "order.lines[1]": (2, 5),
    }


def test_what_looks_equal_to_python_still_differs() -> None:
    assert differences(b'{"a":1}', b'{"a":1.0}') == {"a": (1, 1.0)}
    assert differences(b'{"a":1}', b'{"a":true}') == {"a": (1, True)}
    assert str(differences(b'{"a":0.0}', b'{"a":-0.0}')) == "{'a': (0.0, -0.0)}"


def test_lists_of_other_length_differ_as_a_whole() -> None:
    assert differences(b'{"a":[1]}', b'{"a":[1,2]}') == {"a": ([1], [1, 2])}


def test_only_the_first_eight_are_told() -> None:
    found = differences(canonical(dict.fromkeys("abcdefghijkl", 1)), canonical(dict.fromkeys("abcdefghijkl", 2)))
    assert list(found) == list("abcdefgh")


def test_a_field_that_is_not_there_says_so() -> None:
    assert repr(ABSENT) == "(absent)"
