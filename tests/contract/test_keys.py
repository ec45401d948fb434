"""What may be a key."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.keys import KEY_LENGTH, check_key, check_name
from semel.errors import InvalidKey, InvalidValue

anything = st.text(st.characters(exclude_categories=()), max_size=300)


@given(anything)
def test_a_key_is_stored_in_one_form_or_refused(key: str) -> None:
    try:
        stored = check_key(key)
    except InvalidKey:
        return
    assert stored == unicodedata.normalize("NFC", key)
    assert check_key(stored) == stored
    assert 1 <= len(stored) <= KEY_LENGTH
    assert stored == stored.strip()
    assert "\0" not in stored
    stored.encode()


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=KEY_LENGTH))
def test_any_visible_ascii_is_a_key(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["a b", "Zürich:1", "注文-456", "🧾", "order/1?x=%20", "ключ", "a" * KEY_LENGTH])
def test_keys_that_people_have(key: str) -> None:
    assert check_key(key) == key


def test_keys_that_differ_only_by_normalisation_are_one() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    assert composed != decomposed
    assert check_key(composed) == check_key(decomposed) == composed


def test_the_limit_counts_the_stored_form() -> None:
    assert len(check_key("e\u0301" * KEY_LENGTH)) == KEY_LENGTH
    with pytest.raises(InvalidKey, match=f"has 256 characters; a key has at most {KEY_LENGTH}"):
        check_key("é" * 256)


@pytest.mark.parametrize("key", ["", " ", "\t\n", "\u3000", "\u00a0\u2003"])
def test_a_blank_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidKey, match="is blank"):
        check_key(key)


@pytest.mark.parametrize("key", [" a", "a ", "a\n", "\ta", "\u00a0a", "é\u3000"])
def test_white_space_at_the_ends_is_refused(key: str) -> None:
    with pytest.raises(InvalidKey, match="white space"):
        check_key(key)


@pytest.mark.parametrize("char", ["\0", "\n", "\x1b", "\x7f", "\x85", "\ud800", "\uffff", "\u2028", "\u2029"])
def test_a_character_that_no_key_may_have_is_named_with_its_place(char: str) -> None:
    with pytest.raises(InvalidKey) as caught:
        check_key(f"ab{char}c")
    assert f"holds {char!a} at position 2" in caught.value.message


@pytest.mark.parametrize("key", [None, 1, b"a", ["a"], 1.5, True])
def test_what_is_no_text_is_refused_by_the_name_of_its_option(key: object) -> None:
    with pytest.raises(InvalidKey, match=f"task_id=.* is a {type(key).__name__}"):
        check_key(key)
    with pytest.raises(InvalidKey, match="workflow_id="):
        check_key(key, "workflow_id")


@pytest.mark.parametrize("name", ["default", "a", "A.b-c_1", "_x", "9", "a" * 100])
def test_names_that_people_have(name: str) -> None:
    assert check_name(name, "queue") == name


@pytest.mark.parametrize("name", ["", " ", "a b", "a:b", "a/b", "-a", ".a", "é", "a\n", "a\0", "a" * 101, None, 1])
def test_other_names_are_refused_by_the_name_of_their_option(name: object) -> None:
    with pytest.raises(InvalidValue, match="queue="):
        check_name(name, "queue")
