"""When a failed attempt is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.retry import MOST_ATTEMPTS, Retry
from semel.errors import InvalidValue, LeaseLost, NotDecodable, NotFound, type_name

policies = st.builds(
    Retry,
    max_attempts=st.integers(1, MOST_ATTEMPTS),
    initial=st.floats(0, 1000),
    factor=st.floats(1, 100),
    maximum=st.floats(1000, 100_000),
    jitter=st.floats(0, 1),
)
attempts = st.integers(1, MOST_ATTEMPTS)
dice = st.floats(0, 1, exclude_max=True)


def bounds(policy: Retry, attempt: int) -> tuple[float, float]:
    return policy.delay(attempt, 0.0), policy.delay(attempt, 0.9999999)


@given(policies, attempts, dice)
def test_the_wait_stays_within_jitter_of_the_capped_curve(policy: Retry, attempt: int, roll: float) -> None:
    middle = policy.delay(attempt, 0.5)
    assert 0 <= middle <= float(policy.maximum) + 1e-4  # type: ignore[arg-type]
    wait = policy.delay(attempt, roll)
    assert middle * (1 - policy.jitter) - 1e-9 <= wait <= middle * (1 + policy.jitter) + 1e-9


@given(policies, st.integers(1, 300))
def test_the_wait_never_shrinks_from_one_attempt_to_the_next(policy: Retry, attempt: int) -> None:
    assert policy.delay(attempt, 0.5) <= policy.delay(attempt + 1, 0.5)


@given(policies, attempts, dice)
def test_without_jitter_the_dice_do_not_matter(policy: Retry, attempt: int, roll: float) -> None:
    steady = Retry(initial=policy.initial, factor=policy.factor, maximum=policy.maximum, jitter=0)
    assert steady.delay(attempt, roll) == steady.delay(attempt, 0.0)


def test_the_default_policy() -> None:
    policy = Retry()
    assert policy.max_attempts == 3
    assert [policy.delay(n, 0.5) for n in (1, 2, 3, 9, 10, 10_000)] == [1, 2, 4, 256, 300, 300]
    assert bounds(policy, 1) == (pytest.approx(0.9), pytest.approx(1.1))


def test_a_first_wait_that_is_longer_than_the_default_maximum_is_not_shortened() -> None:
    policy = Retry(initial="1h")
    assert [policy.delay(n, 0.5) for n in (1, 2, 9)] == [3600, 3600, 3600]


def test_a_maximum_shorter_than_the_first_wait_is_refused() -> None:
    with pytest.raises(InvalidValue, match="maximum='5m' is shorter than initial='1h'"):
        Retry(initial="1h", maximum="5m")
    assert Retry(initial="5m", maximum="5m").delay(3, 0.5) == 300


class Declined(Exception):
    pass


class Stolen(Declined):
    pass


class Card:
    class Declined(Exception):
        pass


@pytest.mark.parametrize("entry", [Declined, "Declined", f"{__name__}.Declined"])
def test_a_listed_error_is_not_retried_by_class_by_name_and_for_subclasses(entry: type[Exception] | str) -> None:
    policy = Retry(non_retryable=(entry,))
    assert policy.is_non_retryable(Declined())
    assert policy.is_non_retryable(Stolen())
    assert not policy.is_non_retryable(ValueError())
    assert not Retry(non_retryable=(Stolen,)).is_non_retryable(Declined())


@pytest.mark.parametrize("entry", [Card.Declined, "Card.Declined", f"{__name__}.Card.Declined"])
def test_a_nested_class_is_found_by_its_qualified_name(entry: type[Exception] | str) -> None:
    policy = Retry(non_retryable=(entry,))
    assert policy.is_non_retryable(Card.Declined())
    assert not policy.is_non_retryable(Declined())


def test_everything_is_retried_unless_listed_but_input_that_cannot_be_read() -> None:
    assert not Retry().is_non_retryable(Stolen())
    assert Retry().is_non_retryable(NotDecodable("stored by newer code"))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_attempts", 0), ("max_attempts", -1), ("max_attempts", MOST_ATTEMPTS + 1), ("max_attempts", 1.5),
        ("max_attempts", "3"), ("factor", 0.5), ("factor", 101), ("factor", float("nan")), ("jitter", -0.1),
        ("jitter", 1.1), ("initial", "soon"), ("initial", -1), ("maximum", "5 parsecs"),
    ],
)  # fmt: skip
def test_a_bad_policy_is_refused_by_the_name_of_its_option(option: str, value: object) -> None:
    with pytest.raises(InvalidValue, match=f"{option}="):
        Retry(**{option: value})  # type: ignore[arg-type]


def test_errors_of_semel_go_by_their_public_names() -> None:
    assert type_name(LeaseLost) == "semel.LeaseLost"
    assert type_name(ValueError) == "ValueError"
    assert type_name(Declined) == f"{__name__}.Declined"
    assert Retry(non_retryable=("semel.NotFound",)).is_non_retryable(NotFound("no such key"))
