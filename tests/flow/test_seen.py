"""Which messages are duplicates, and whose answers are kept."""

from semel.contract.window import DedupWindow
from semel.flow.seen import GRACE, MOST_LATE, PRIVATE, Seen

SECOND = 1_000_000
HOUR = 3600 * SECOND


def seen(*rows: tuple[int, str, int], max_keys: int = 100) -> Seen:
    return Seen(DedupWindow("1h", max_keys), rows)


def test_a_key_is_new_once_within_the_window() -> None:
    one = seen()
    assert one.push("k", 0)
    assert not one.push("k", HOUR)
    assert one.push("k", HOUR + 1)


def test_what_is_written_down_is_known() -> None:
    one = seen((4, "a", 0), (7, "b", SECOND))
    assert not one.push("a", SECOND)
    assert one.push("c", SECOND)
    assert one.done("c", SECOND) == 8


def test_answers_go_with_their_keys() -> None:
    one = seen((1, "a", 0), (2, "b", SECOND))
    assert one.forget(HOUR) == []
    assert one.push("c", HOUR + 1)
    assert one.forget(HOUR + 1) == [1]
    assert one.forget(2 * HOUR) == []


def test_the_answer_to_a_namesake_goes_at_once() -> None:
    one = Seen(DedupWindow("1s"), [])
    assert one.push("k", 0)
    one.done("k", 0)
    assert one.push("k", 2 * SECOND)
    assert one.forget(2 * SECOND) == [1]
    assert one.done("k", 3 * SECOND) == 2
    assert one.forget(3 * SECOND) == []


def test_an_answer_outlasts_a_key_that_had_to_make_room() -> None:
    one = seen(max_keys=1)
    for n, key in enumerate("abc"):
        assert one.push(key, n)
        one.done(key, n)
    assert (one.overflowed(), one.overflowed()) == (2, 0)
    assert one.forget(GRACE - 1) == []
    assert one.forget(GRACE + 2) == [1, 2]
    assert one.push("a", GRACE + 3)


def test_a_flood_leaves_no_more_answers_than_there_may_be() -> None:
    one = seen(max_keys=5)
    gone = []
    for n in range(MOST_LATE + 100):
        assert one.push(f"k{n}", n)
        one.done(f"k{n}", n)
        gone += one.forget(n)
    assert gone == list(range(1, 96)), "all but those that are kept for their keys or for their askers"


def test_what_overflowed_before_is_not_told_again() -> None:
    assert seen((1, "a", 0), (2, "b", 1), max_keys=1).overflowed() == 0


def test_questions_without_a_key_are_apart() -> None:
    one = seen(max_keys=1)
    assert one.push("k", 0)
    one.done("k", 0)
    for n in range(5):
        assert one.push(f"{PRIVATE}{n}", n)
        assert not one.push(f"{PRIVATE}{n}", n)  # sent twice, since the first reply was lost
        one.done(f"{PRIVATE}{n}", n)
    assert not one.push("k", 10)
    assert one.overflowed() == 0
    assert one.push(f"{PRIVATE}late", 2 * HOUR)
    assert one.forget(2 * HOUR) == [2, 3, 4, 5, 6]
