"""A `*` in a type or source stands for any characters, nothing else is special, and no pattern takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.triggers.patterns import PatternIndex, matches

words = st.text(alphabet="ab.*", max_size=12)
texts = st.text(alphabet="ab.", max_size=16)


def oracle(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("invoice.paid", "invoice.paid", True),
        ("invoice.paid", "invoice.paid.twice", False),
        ("invoice.paid", "Invoice.paid", False),
        ("invoice.*", "invoice.paid", True),
        ("invoice.*", "invoice.", True),
        ("invoice.*", "invoice", False),
        ("*.paid", "invoice.paid", True),
        ("*", "", True),
        ("*", "anything:at/all\n", True),
        ("", "", True),
        ("", "a", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*ab*ab*", "abab", True),
        ("*ab*ab*", "ab", False),
        ("a.c", "abc", False),
        ("a?c", "abc", False),
        ("[ab]", "a", False),
        ("**", "x", True),
        ("ünï*", "ünïcode", True),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_is_special(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@given(words, texts)
def test_it_agrees_with_regular_expressions(pattern: str, text: str) -> None:
    assert matches(pattern, text) == oracle(pattern, text)


def test_a_pattern_that_would_blow_up_a_backtracking_matcher_takes_no_time() -> None:
    began = time.process_time()
    for _ in range(100):
        assert not matches("*a" * 127, "a" * 1000 + "b")
    assert time.process_time() - began < 1


@given(st.lists(st.lists(words, min_size=1, max_size=3), max_size=12), texts)
def test_the_index_finds_what_trying_every_pattern_finds(subscriptions: list[list[str]], text: str) -> None:
    index = PatternIndex((patterns, number) for number, patterns in enumerate(subscriptions))
    expected = [n for n, patterns in enumerate(subscriptions) if any(oracle(one, text) for one in patterns)]
    assert index.find(text) == expected
    assert len(index) == len(subscriptions)


def test_the_index_does_not_try_every_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def count(pattern: str, text: str) -> bool:
        tried.append(pattern)
        return matches(pattern, text)

    monkeypatch.setattr("semel.triggers.patterns.matches", count)
    index = PatternIndex(([f"shop-{n}.*", f"shop-{n}"], n) for n in range(10_000))
    assert index.find("shop-77.paid") == [77]
    assert tried == ["shop-77.*"]
