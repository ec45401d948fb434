"""When a failed attempt is tried again: exponential backoff, jitter, a limit, and what is hopeless."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from semel.contract.durations import Duration, parse_duration
from semel.errors import InvalidValue

MOST_ATTEMPTS = 10_000


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy.

    `max_attempts` counts the first run: 1 means never again, also after a worker's death.
    The wait before attempt n+1 is `initial * factor**(n-1)`, at most `maximum`, spread by `jitter`
    (0.1 = ten per cent either way). `non_retryable` lists exception classes, or their names, that
    end the execution at once; subclasses count.
    """

    max_attempts: int = 3
    initial: Duration = "1s"
    factor: float = 2.0
    maximum: Duration = "5m"
    jitter: float = 0.1
    non_retryable: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or not 1 <= self.max_attempts <= MOST_ATTEMPTS:
            raise InvalidValue(f"max_attempts={self.max_attempts!r}: give a whole number from 1 to {MOST_ATTEMPTS}.")
        if not 1.0 <= self.factor <= 100.0:
            raise InvalidValue(f"factor={self.factor!r}: give a number from 1 to 100.")
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidValue(f"jitter={self.jitter!r}: give a number from 0 to 1.")
        parse_duration(self.initial, "initial")
        parse_duration(self.maximum, "maximum")

    def delay(self, attempt: int, dice: float) -> float:
        """Seconds to wait after `attempt` failed; `dice` in [0, 1) is rolled by the caller."""
        first = parse_duration(self.initial).total_seconds()
        most = parse_duration(self.maximum).total_seconds()
        # The exponent is bounded: 100.0 ** 10_000 overflows, and any wait is capped long before.
        wait = min(most, first * self.factor ** min(attempt - 1, 128))
        return wait * (1.0 + self.jitter * (2.0 * dice - 1.0))

    def hopeless(self, names: Iterable[str]) -> bool:
        """Is one of these (the exception's class names, base classes too) not worth a retry?"""
        stop = set()
        for entry in self.non_retryable:
            stop.add(entry if isinstance(entry, str) else f"{entry.__module__}.{entry.__qualname__}")
        return not stop.isdisjoint(names)


def retry_of(retry: object, unless: Retry) -> Retry:
    """The policy that `retry=` stands for; `unless` one is given."""
    if retry is None:
        return unless
    if isinstance(retry, Retry):
        return retry
    if isinstance(retry, bool) or not isinstance(retry, int):
        raise InvalidValue(f"retry={retry!r}: give a whole number of attempts, or a semel.Retry(…).")
    return Retry(max_attempts=retry)
