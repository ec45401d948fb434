"""Which messages are duplicates, and whose answers are kept."""

from semel.contract.window import DedupWindow
from semel.flow.entity_messages import (
    CONFLICT,
    FAILED,
    FAILED_BYTES,
    FAILED_FOR,
    GRACE,
    MOST_CONFLICTS,
    MOST_FAILED,
    MOST_LATE,
    PRIVATE,
    REDRIVE,
    Seen,
    SeenRow,
)

SECOND = 1_000_000
HOUR = 3600 * SECOND


def seen(*rows: tuple[int, str, int], max_keys: int = 100) -> Seen:
    return Seen(DedupWindow("1h", max_keys), [SeenRow(*row) for row in rows])


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


def test_a_failed_message_frees_its_key_and_stays_until_that_is_used_again() -> None:
    one = seen()
    assert one.push("k", 0, "1 add")
    row, kept = one.fail("k", 1, 10)
    assert (row, kept) == (SeenRow(1, "k", 1, "1 add", 10), True)
    assert one.forget(HOUR) == []
    again = Seen(DedupWindow("1h"), [row])
    for known in (one, again):
        assert known.push("k", 2, "1 add")
        assert known.forget(2) == [1]
        assert not known.push("k", 3)
        assert known.done("k", 3) == 2


def test_a_failed_message_that_a_journal_tells_of_stays_failed() -> None:
    one = Seen(DedupWindow("1h"), [SeenRow(1, "k", 1, None, 10)])
    one.remember("k", 2)
    assert one.forget(3) == []
    assert one.push("k", 4)


def test_a_failed_message_without_a_key_is_sent_again_once() -> None:
    one = seen()
    row, _ = one.fail(None, 0, 10)
    assert row.key == f"{FAILED}1"
    assert one.push(f"{REDRIVE}1", 1)
    assert one.forget(1) == [1]
    assert not one.push(f"{REDRIVE}1", 2)
    row, _ = one.fail(f"{REDRIVE}1", 3, 10)
    assert row.key == f"{FAILED}2"
    assert one.push(f"{REDRIVE}2", 4)


def test_failed_messages_are_bounded_in_number_age_and_bytes() -> None:
    one = seen()
    for n in range(MOST_FAILED + 5):
        one.fail(None, n, 1)
    assert one.forget(200) == [], "their askers may not have looked yet"
    assert one.forget(GRACE + 200) == [1, 2, 3, 4, 5]
    assert len(one.forget(FAILED_FOR + 200)) == MOST_FAILED
    assert one.fail(None, 0, FAILED_BYTES)[1]
    assert one.fail(None, 0, 1) == (SeenRow(MOST_FAILED + 7, f"{FAILED}{MOST_FAILED + 7}", 0, None, 0), False)


def test_the_last_refused_messages_are_noted() -> None:
    one = seen()
    rows = [one.refuse(n) for n in range(MOST_CONFLICTS + 2)]
    assert rows[0] == SeenRow(1, f"{CONFLICT}1", 0)
    assert one.forget(100) == [1, 2]
    assert len(Seen(DedupWindow("1h"), rows[2:]).forget(FAILED_FOR + 100)) == MOST_CONFLICTS
