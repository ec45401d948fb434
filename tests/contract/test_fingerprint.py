"""Is it the same request?"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.codec import MAX_PAYLOAD, MOST_GUESSES, Shape
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


def print_of(*args: Any, **kwargs: Any) -> bytes:
    return fingerprint_by(SHAPE, *args, **kwargs)


def fingerprint_by(shape: Shape, *args: Any, **kwargs: Any) -> bytes:
    bound = shape.bind(args, kwargs)
    return shape.fingerprint("charge", bound, shape.encode_input(bound, MAX_PAYLOAD))


def test_the_format_is_what_it_was_in_the_first_release() -> None:
    """Change it, and every key that is held becomes a conflict: a new format needs a new name and both be compared."""
    payload = b'{"cents":9900,"currency":"EUR","order":"o-1"}'
    assert fingerprint("charge", payload).hex() == "e4ada9426ac7f028dc82f161b21295be"
    assert asked("o-1", 9900) == b'{"cents":9900,"order":"o-1"}'
    assert print_of("o-1", 9900).hex() == "e37afab17a726ece51245080911254b0"
    assert print_of("o-1", 9900, currency="USD").hex() == "220f7481038426ce7c8e8553a6e852d4"


def test_positional_keyword_and_default_are_the_same_request() -> None:
    first = print_of("o-1", 9900)
    assert first == print_of("o-1", cents=9900)
    assert first == print_of(cents=9900, order="o-1")
    assert first == print_of("o-1", 9900, currency="EUR")
    assert first != print_of("o-1", 9900, currency="USD")


def test_what_was_not_given_is_not_stored_and_what_was_is() -> None:
    assert asked("o-1", 9900) == b'{"cents":9900,"order":"o-1"}'
    assert asked("o-1", 9900, currency="EUR") == b'{"cents":9900,"currency":"EUR","order":"o-1"}'
    assert SHAPE.with_defaults(SHAPE.bind(("o-1", 9900), {})) == {"order": "o-1", "cents": 9900, "currency": "EUR"}


def test_a_function_that_got_parameters_makes_the_fingerprint_that_it_made_before() -> None:
    def before(order: str, cents: int) -> None: ...

    def after(order: str, cents: int, *lines: int, note: str | None = None, **more: str) -> None: ...

    old, new = Shape(before, "charge"), Shape(after, "charge")
    assert fingerprint_by(old, "o-1", 1) == fingerprint_by(new, "o-1", 1) == fingerprint_by(new, "o-1", 1, note=None)
    assert fingerprint_by(new, "o-1", 1) != fingerprint_by(new, "o-1", 1, 2)
    assert fingerprint_by(new, "o-1", 1) != fingerprint_by(new, "o-1", 1, extra="x")


NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = object()


def test_a_default_is_compared_as_it_would_be_stored() -> None:
    def fn(one: float = 1, many: tuple[int, ...] = (1, 2), at: datetime = NEW_YEAR, odd: Any = NOTHING) -> None: ...

    shape = Shape(fn, "charge")
    nothing = fingerprint_by(shape)
    assert nothing == fingerprint_by(shape, 1) == fingerprint_by(shape, many=(1, 2), at=NEW_YEAR)
    assert nothing != fingerprint_by(shape, 1.5)
    assert shape.encode_input(shape.bind((), {}), MAX_PAYLOAD) == b"{}"


@pytest.mark.parametrize("named", [{}, {"currency": "EUR"}, {"note": ""}, {"currency": "EUR", "note": ""}])
def test_a_fingerprint_of_all_arguments_still_stands_for_the_same_request(named: dict[str, Any]) -> None:
    def charge(order: str, cents: int, currency: str = "EUR", note: str = "") -> None: ...

    shape = Shape(charge, "charge")
    payload = shape.encode_input(shape.bind(("o-1", 1), named), MAX_PAYLOAD)
    same = {fingerprint_by(shape, "o-1", 1, **named), *shape.older_fingerprints("charge", payload)}
    for then in ({}, {"currency": "EUR"}, {"note": ""}, {"currency": "EUR", "note": ""}):
        assert fingerprint("charge", canonical({"order": "o-1", "cents": 1, **then})) in same
    for other in ({"currency": "USD"}, {"note": "x"}):
        assert fingerprint("charge", canonical({"order": "o-1", "cents": 1, **other})) not in same


def test_older_fingerprints_are_few_however_many_parameters_there_are() -> None:
    names = [f"p{n}" for n in range(40)]
    scope: dict[str, Any] = {}
    exec(f"def fn({', '.join(f'{name}=0' for name in names)}): ...", scope)
    found = list(Shape(scope["fn"], "charge").older_fingerprints("charge", b"{}"))
    assert len(found) <= MOST_GUESSES + 1
    assert found[0] == fingerprint("charge", b"{}")
    assert found[1] == fingerprint("charge", canonical(dict.fromkeys(names, 0)))


@pytest.mark.slow
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


@pytest.mark.slow
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
