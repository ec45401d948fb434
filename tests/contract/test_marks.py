"""Messages under one key are told apart by name and by argument, in few bytes."""

import msgspec
import pytest

from semel.contract.marks import MOST_FIELDS, MarkDifference, compare_marks, field_hash, message_mark, signal_mark


def mark(handler: str, /, **arguments: object) -> str:
    return message_mark(handler, msgspec.json.encode(arguments, order="sorted"))


def test_the_same_message_has_the_same_mark() -> None:
    assert compare_marks(mark("add", n=1, why="x"), mark("add", why="x", n=1)) is None
    assert compare_marks(mark("add"), mark("add")) is None


@pytest.mark.parametrize(
    ("held", "offered", "differs"),
    [
        (mark("add", n=1), mark("remove", n=1), MarkDifference("add", "remove")),
        (mark("add", n=1), mark("add", n=2), MarkDifference("add", "add", ("n",))),
        (mark("add", n=1), mark("add", n=1.0), MarkDifference("add", "add", ("n",))),
        (mark("add", n=1), mark("add", n=1, why=""), MarkDifference("add", "add", ("why",))),
        (mark("add", a=1, b=2, c=3), mark("add", a=2, b=2, c=4), MarkDifference("add", "add", ("a", "c"))),
        (signal_mark("yes", b"1"), signal_mark("no", b"1"), MarkDifference("yes", "no")),
        (signal_mark("yes", b"1"), signal_mark("yes", b"2"), MarkDifference("yes", "yes")),
    ],
)
def test_another_message_is_told_by_what_differs(held: str, offered: str, differs: MarkDifference) -> None:
    assert compare_marks(held, offered) == differs


def test_an_argument_that_equals_its_default_counts_as_left_out() -> None:
    defaults = {"n": field_hash(b"1"), "why": field_hash(b'""')}
    assert compare_marks(mark("add"), mark("add", n=1), defaults) is None
    assert compare_marks(mark("add", n=1, why=""), mark("add"), defaults) is None
    assert compare_marks(mark("add", n=2), mark("add"), defaults) == MarkDifference("add", "add", ("n",))


def test_what_cannot_be_compared_counts_by_its_key_alone() -> None:
    assert compare_marks(None, mark("add")) is None
    assert compare_marks(mark("add"), None) is None
    assert compare_marks("2 of a newer Semel", mark("add")) is None


def test_a_mark_stays_small() -> None:
    wide = {f"argument_{n}": n for n in range(MOST_FIELDS + 1)}
    assert len(mark("add", **wide)) < 20
    assert compare_marks(mark("add", **wide), mark("add", **(wide | {"argument_0": 7}))) == MarkDifference("add", "add")
    assert len(mark("add-points", points=500)) == 28
