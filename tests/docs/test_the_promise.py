"""The promise is one text, wherever it stands, and the tables beside it are what the code does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from semel.contract.decision import Prior, Reason, Refuse, Request, Reuse, decide
from semel.contract.lifecycle import ARROWS, Status
from tests.docs.pages import read, table

CONTRACT = "docs/explanation/contract.md"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


PROMISE = (
    "Accepted means committed. An accepted execution reaches a terminal state. At most one execution per "
    "(namespace, kind, key) is live or completed within its window. A step that was recorded is not run again. "
    "Effects inside the recording transaction happen exactly once; effects outside it happen at least once under "
    "a key that never changes. The window is explicit, and separate from history: keys may outlive runs."
)


def promise(page: str) -> str:
    """The quoted block that begins with the first words of the promise."""
    quotes = re.findall(r"(?m)(?:^>.*\n)+", read(page))
    found = [" ".join(q.replace(">", " ").split()) for q in quotes]
    return next(q for q in found if q.startswith("Accepted means committed."))


@pytest.mark.parametrize("page", ["README.md", CONTRACT])
def test_the_promise_is_kept_word_for_word(page: str) -> None:
    assert promise(page) == PROMISE


def rows() -> list[tuple[str, str, str]]:
    head, *body = table(read(CONTRACT), "the key is held by")
    return [(row[0], policy, answer) for row in body for policy, answer in zip(head[1:], row[1:], strict=True)]


def priors(words: str) -> list[Prior | None]:
    """The situations that one row of the matrix stands for."""
    if words == "nobody":
        return [None]
    if words.startswith("any that ended"):
        return [prior(status, -1) for status in Status if status.terminal]
    return [prior(Status(word), +1) for word in words.split(", ")]


def prior(status: Status, hours: int) -> Prior:
    ends = NOW + timedelta(hours=hours) if status.terminal else None
    return Prior("e1", "charge", b"same", status, 0, ends)


@pytest.mark.parametrize(("words", "policy", "answer"), rows())
def test_the_matrix_is_what_decide_does(words: str, policy: str, answer: str) -> None:
    for held in priors(words):
        decision = decide(held, Request("charge", b"same", Reuse(policy)), NOW)
        assert type(decision).__name__ == answer
        other = decide(held, Request("charge", b"other", Reuse(policy)), NOW)
        if answer == "Admit":
            assert type(other).__name__ == "Admit"
        else:
            assert isinstance(other, Refuse)


def test_the_matrix_has_every_state_and_policy() -> None:
    text = " ".join(words for words, _, _ in rows())
    assert all(status.value in text for status in Status)
    assert {policy for _, policy, _ in rows()} == {reuse.value for reuse in Reuse}


def test_the_contract_names_every_reason() -> None:
    body = table(read(CONTRACT), "reason")[1:]
    assert {row[0] for row in body} == {reason.value for reason in Reason}


def test_the_diagram_has_exactly_the_arrows_of_the_lifecycle() -> None:
    drawn = re.findall(r"(?m)^    (\w+) --> (\w+): (\w+)$", read("ARCHITECTURE.md"))
    arrows = [(a.value, b.value, event) for a, events in ARROWS.items() for event, b in events.items()]
    assert sorted(drawn) == sorted(arrows)
