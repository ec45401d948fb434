"""Keys for the outside world: the same on every attempt, and of a form that never changes silently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.keys import KEY_LENGTH, check_key, effect_key
from semel.errors import InvalidKey, InvalidValue

names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,20}", fullmatch=True)


def usable(key: str) -> bool:
    try:
        return check_key(key) == key
    except InvalidKey:
        return False


subjects = st.text(min_size=1, max_size=255).filter(usable)
calls = st.tuples(names, st.sampled_from(["task", "workflow"]), subjects, st.integers(0, 99), names)


def test_the_format_is_what_it_was_in_the_first_release() -> None:
    assert effect_key("default", "task", "order-456", 0, "charge") == "semel1:default:task:order-456:charge"
    assert effect_key("default", "task", "order-456", 1, "charge") == "semel1:default:task:order-456:charge#2"
    assert effect_key("shop", "task", "a:b:c", 9, "pay.card") == "semel1:shop:task:a:b:c:pay.card#10"
    assert effect_key("default", "task", "x" * 255, 1, "charge") == (
        "semel1:37a8eec1ce19687d:task:d22609da3ae3956ca4877056a8e580eed744a6f7d7cfa5b19dd88d52fcc0d435:charge#2"
    )


@given(calls)
def test_it_is_stable_and_fits_every_provider(call: tuple[str, str, str, int, str]) -> None:
    key = effect_key(*call)
    assert key == effect_key(*call)
    assert key.startswith("semel1:")
    assert len(key) <= KEY_LENGTH


@pytest.mark.slow
@given(calls, calls)
def test_different_effects_have_different_keys(
    one: tuple[str, str, str, int, str], other: tuple[str, str, str, int, str]
) -> None:
    assert (effect_key(*one) == effect_key(*other)) == (one == other)


def test_a_generation_is_never_taken_for_a_part_of_the_business_key() -> None:
    rerun = effect_key("default", "task", "order", 1, "charge")
    assert rerun != effect_key("default", "task", "order:charge", 0, "2")


def test_the_longest_parts_still_fit() -> None:
    assert len(effect_key("n" * 100, "workflow", "k" * 255, 10_000, "e" * 100)) <= KEY_LENGTH


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a#b", "é", "n" * 101])
def test_a_bad_effect_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="effect name="):
        effect_key("default", "task", "order", 0, name)
