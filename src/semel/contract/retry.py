"""When a failed attempt is tried again: exponential backoff, jitter, a limit, and what is hopeless."""

from __future__ import annotations

from dataclasses import dataclass

from semel.contract.durations import Duration, parse_duration
from semel.errors import InputError, InvalidValue, type_name

MOST_ATTEMPTS = 10_000
LONGEST_WAIT = "5m"
"""The longest wait between two attempts, unless the policy names another or begins with a longer one."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy.

    `max_attempts` counts the first run: 1 means never again, also after a worker's death.
    The wait before attempt n+1 is `initial * factor**(n-1)`, at most `maximum`, spread by `jitter`
    (0.1 = ten per cent either way). Without `maximum` a wait grows to five minutes; one that begins longer
    stays as long as it began. `non_retryable` lists exception classes, or their names, that
    end the execution at once; subclasses count.
    """

    max_attempts: int = 3
    initial: Duration = "1s"
    factor: float = 2.0
    maximum: Duration | None = None
    jitter: float = 0.1
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or not 1 <= self.max_attempts <= MOST_ATTEMPTS:
            raise InvalidValue(f"max_attempts={self.max_attempts!r}: give a whole number from 1 to {MOST_ATTEMPTS}.")
        if not 1.0 <= self.factor <= 100.0:
            raise InvalidValue(f"factor={self.factor!r}: give a number from 1 to 100.")
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidValue(f"jitter={self.jitter!r}: give a number from 0 to 1.")
        first = parse_duration(self.initial, "initial")
        if self.maximum is not None and parse_duration(self.maximum, "maximum") < first:
            raise InvalidValue(
                f"maximum={self.maximum!r} is shorter than initial={self.initial!r}: no wait would be as long as the"
                " first. Give a longer maximum, or leave it out."
            )

    def delay(self, attempt: int, dice: float) -> float:
        """Seconds to wait after `attempt` failed; `dice` in [0, 1) is rolled by the caller."""
        first = parse_duration(self.initial).total_seconds()
        most = max(first, parse_duration(LONGEST_WAIT if self.maximum is None else self.maximum).total_seconds())
        # The exponent is bounded: 100.0 ** 10_000 overflows, and any wait is capped long before.
        wait = min(most, first * self.factor ** min(attempt - 1, 128))
        return wait * (1.0 + self.jitter * (2.0 * dice - 1.0))

    def is_non_retryable(self, error: BaseException) -> bool:
        """Is an error not worth a retry? Listed as a class or by a name of it, or input that no attempt can read.

        A name is `CardDeclined`, `shop.errors.CardDeclined` or, for a nested class, `Card.Declined`. Base classes
        of the error count. A class is compared by its name too, since a reloaded module makes it anew.
        """
        if isinstance(error, InputError):
            return True
        if not self.non_retryable:
            return False
        stop = {e if isinstance(e, str) else f"{e.__module__}.{e.__qualname__}" for e in self.non_retryable}
        return any(
            not stop.isdisjoint((c.__name__, c.__qualname__, f"{c.__module__}.{c.__qualname__}", type_name(c)))
            for c in type(error).__mro__
        )


def retry_of(retry: object, unless: Retry) -> Retry:
    """The policy that `retry=` stands for; `unless` one is given."""
    if retry is None:
        return unless
    if isinstance(retry, Retry):
        return retry
    if isinstance(retry, bool) or not isinstance(retry, int):
        raise InvalidValue(f"retry={retry!r}: give a whole number of attempts, or a semel.Retry(…).")
    return Retry(max_attempts=retry)
