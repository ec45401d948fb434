"""When a failed attempt is tried again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.contract.retry import MOST_ATTEMPTS, Retry
from semel.errors import InvalidValue

policies = st.builds(
    Retry,
    max_attempts=st.integers(1, MOST_ATTEMPTS),
    initial=st.floats(0, 1000),
    factor=st.floats(1, 100),
    maximum=st.floats(0, 100_000),
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


class Declined(Exception):
    pass


class Stolen(Declined):
    pass


def names(error: type[BaseException]) -> list[str]:
    return [f"{c.__module__}.{c.__qualname__}" for c in error.__mro__] + [c.__name__ for c in error.__mro__]


@pytest.mark.parametrize("entry", [Declined, "Declined", f"{__name__}.Declined"])
def test_a_listed_error_is_hopeless_by_class_by_name_and_for_subclasses(entry: type[Exception] | str) -> None:
    policy = Retry(non_retryable=(entry,))
    assert policy.hopeless(names(Declined))
    assert policy.hopeless(names(Stolen))
    assert not policy.hopeless(names(ValueError))
    assert not Retry(non_retryable=(Stolen,)).hopeless(names(Declined))


def test_nothing_is_hopeless_unless_listed() -> None:
    assert not Retry().hopeless(names(Stolen))


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
