"""A worker that cannot look at schedules, because the engine does not answer, knows since when once it can."""

from __future__ import annotations

import pytest

from semel.engines.journal import ticks
from semel.engines.journal.ticks import Ticker
from semel.errors import EngineUnavailable


class Answers:
    """Schedules that are due, of an engine that answers or does not."""

    def __init__(self) -> None:
        self.away: set[str] = set()
        self.slow: dict[str, float] = {}
        """Seconds until an answer, and by which clock."""
        self.clock: Clock | None = None
        self.looks: list[float] = []

    def _ask(self, what: str) -> None:
        if what in self.away:
            raise EngineUnavailable("away")
        if self.clock is not None:
            self.clock.now += self.slow.get(what, 0.0)

    async def start_pending(self) -> None:
        self._ask("start_pending")

    async def next_due(self) -> float:
        self._ask("next_due")
        return 0.0

    async def run_due(self, down_for: float = 0.0) -> None:
        self._ask("run_due")
        self.looks.append(round(down_for, 6))

    async def forget(self) -> None: ...


class Clock:
    """Instead of the time module."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ticks, "time", clock)
    return clock


@pytest.mark.parametrize("part", ["start_pending", "next_due", "run_due"])
async def test_the_first_look_in_vain_counts_whatever_did_not_answer(clock: Clock, part: str) -> None:
    timed = Answers()
    ticker = Ticker("schedules", timed, 60.0)
    await ticker._run()
    clock.now += 100  # nobody looked: that is no outage
    timed.away = {part}
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await ticker._run()
        clock.now += 20
    timed.away = set()
    await ticker._run()
    await ticker._run()
    assert timed.looks == [0.0, 61.0, 0.0], "a slot that fired a second before the first of them was not late yet"


@pytest.mark.parametrize("part", ["start_pending", "next_due"])
async def test_an_engine_that_is_silent_and_answers_in_the_end_was_down(clock: Clock, part: str) -> None:
    timed = Answers()
    timed.clock = clock
    ticker = Ticker("schedules", timed, 60.0)
    timed.slow = {part: 2.0}
    await ticker._run()
    timed.slow = {part: 25.0}
    await ticker._run()
    timed.slow = {}
    await ticker._run()
    assert [look > 0 for look in timed.looks] == [False, True, False]
    assert timed.looks[1] == 26.0
