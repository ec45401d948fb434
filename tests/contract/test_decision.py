"""The contract in one function, against the whole matrix."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from semel.contract.decision import Admit, Join, Prior, Reason, Refuse, Replay, Request, Reuse, decide
from semel.contract.lifecycle import Status

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
LIVE = (Status.PENDING, Status.RUNNING, Status.WAITING)
FREEING = (Status.FAILED, Status.CANCELLED, Status.TIMED_OUT)

MATRIX = {
    **{(status, reuse): Join for status in LIVE for reuse in Reuse},
    (Status.COMPLETED, Reuse.FAILED_ONLY): Replay,
    (Status.COMPLETED, Reuse.REJECT): Replay,
    (Status.COMPLETED, Reuse.ALWAYS): Admit,
    **{(status, Reuse.FAILED_ONLY): Admit for status in FREEING},
    **{(status, Reuse.REJECT): Replay for status in FREEING},
    **{(status, Reuse.ALWAYS): Admit for status in FREEING},
}


def prior(status: Status, *, window_over: bool = False, generation: int = 3) -> Prior:
    ends = None if status in LIVE else NOW + timedelta(seconds=0 if window_over else 1)
    return Prior("old", "charge", b"print", status, generation, ends)


def test_the_matrix_has_every_cell() -> None:
    assert set(MATRIX) == set(product(Status, Reuse))


@pytest.mark.parametrize(("status", "reuse"), MATRIX)
def test_the_same_request_gets_what_the_matrix_says(status: Status, reuse: Reuse) -> None:
    old = prior(status)
    decision = decide(old, Request("charge", b"print", reuse), NOW)
    assert type(decision) is MATRIX[status, reuse]
    if isinstance(decision, Join | Replay):
        assert decision.prior is old


@pytest.mark.parametrize(("status", "reuse"), MATRIX)
@pytest.mark.parametrize(
    ("name", "print_", "reason"),
    [
        ("charge", b"other", Reason.INPUT_DIFFERS),
        ("refund", b"print", Reason.FUNCTION_DIFFERS),
        ("refund", b"other", Reason.FUNCTION_DIFFERS),
    ],
)
def test_another_request_is_refused_exactly_where_the_same_one_would_share(
    status: Status, reuse: Reuse, name: str, print_: bytes, reason: Reason
) -> None:
    old = prior(status)
    decision = decide(old, Request(name, print_, reuse), NOW)
    if MATRIX[status, reuse] is Admit:
        assert isinstance(decision, Admit)
    else:
        assert decision == Refuse(old, reason)


@pytest.mark.parametrize(("reuse", "name", "print_"), [*product(Reuse, ("charge", "refund"), (b"print", b"x"))])
def test_a_key_that_nobody_holds_is_admitted(reuse: Reuse, name: str, print_: bytes) -> None:
    assert decide(None, Request(name, print_, reuse), NOW) == Admit(None, 0)


@pytest.mark.parametrize(
    ("status", "reuse", "print_"), [*product((Status.COMPLETED, *FREEING), Reuse, (b"print", b"other"))]
)
def test_a_key_whose_window_is_over_is_admitted(status: Status, reuse: Reuse, print_: bytes) -> None:
    decision = decide(prior(status, window_over=True), Request("charge", print_, reuse), NOW)
    assert decision == Admit("old", 3 + (status is Status.COMPLETED))


@pytest.mark.parametrize("reuse", Reuse)
def test_the_window_covers_its_last_instant_but_one(reuse: Reuse) -> None:
    ends = NOW + timedelta(microseconds=1)
    old = Prior("old", "charge", b"print", Status.COMPLETED, 0, ends)
    asked = Request("charge", b"print", reuse)
    assert isinstance(decide(old, asked, NOW), Admit if reuse is Reuse.ALWAYS else Replay)
    assert decide(old, asked, ends) == Admit("old", 1)


@pytest.mark.parametrize(("status", "grows"), [(Status.COMPLETED, 1), *((s, 0) for s in FREEING)])
def test_only_a_completed_predecessor_makes_a_new_generation(status: Status, grows: int) -> None:
    decision = decide(prior(status, generation=7), Request("charge", b"print", Reuse.ALWAYS), NOW)
    assert decision == Admit("old", 7 + grows)
