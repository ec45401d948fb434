"""The states and their arrows."""

import pytest

from semel.contract.lifecycle import ARROWS, LIVE, RELEASED, TERMINAL, Status, after


def test_every_state_has_its_row() -> None:
    assert set(ARROWS) == set(Status)


def test_every_state_is_live_or_terminal_and_never_both() -> None:
    assert set(Status) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    for status in Status:
        assert (status.live, status.terminal) == (status in LIVE, status in TERMINAL)


def test_the_four_endings_are_final() -> None:
    assert {"completed", "failed", "cancelled", "timed_out"} == TERMINAL
    assert [ARROWS[status] for status in TERMINAL] == [{}] * 4


def test_every_state_can_be_reached_from_the_first() -> None:
    reached, border = {Status.PENDING}, [Status.PENDING]
    while border:
        new = set(ARROWS[border.pop()].values()) - reached
        reached |= new
        border += new
    assert reached == set(Status)


@pytest.mark.parametrize("status", sorted(LIVE))
def test_every_live_state_can_end(status: Status) -> None:
    reached, border = set(), [status]
    while border:
        new = set(ARROWS[border.pop()].values()) - reached
        reached |= new
        border += new
    assert reached >= TERMINAL


@pytest.mark.parametrize("status", sorted(LIVE))
def test_whatever_is_live_can_be_cancelled(status: Status) -> None:
    assert after(status, "cancel") is Status.CANCELLED


def test_only_running_completes() -> None:
    assert [s for s in Status if "complete" in ARROWS[s]] == [Status.RUNNING]


def test_a_missing_arrow_is_an_error() -> None:
    with pytest.raises(LookupError):
        after(Status.COMPLETED, "retry")


def test_only_a_completed_ending_keeps_its_key() -> None:
    assert {Status.FAILED, Status.CANCELLED, Status.TIMED_OUT} == RELEASED
