"""Schedules, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards a clean worker goes on: each slot was started once or says why not, none is lost, cursors agree with runs and
every run with its record (I1 to I6).
"""

from __future__ import annotations

import random
import time
from functools import partial

import pytest

from semel.testing import Mode
from tests.faults.forks import Forks
from tests.faults.points import OPERATIONS, MessageCounts, sweep
from tests.faults.proofs import Tell, seconds
from tests.faults.schedule_shop import ScheduleShop
from tests.faults.site import Site

SCHEDULES = [name for name, operation in OPERATIONS.items() if operation.shop is ScheduleShop]
ENOUGH = 5.0
"""Seconds that `make test` has for this on each database."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_schedule_goes_on_wherever_a_worker_died(site: Site, fork_server: Forks) -> None:
    tally, end = MessageCounts(), time.monotonic() + ENOUGH
    names = (
        "tick_that_meets_active_runs",
        "step_that_runs_slots_again",
        "tick_that_starts_runs",
        "change_schedule_with_an_open_slot",
    )
    for name in names:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 3 if time.monotonic() < end else 10)
    print(tally.report(f"crash points of schedules on {site.engine}, a part"))
    assert tally.wrong == []
    assert set(tally.points) == set(names)  # how many points there is time for depends on the machine


def step_until(end: float) -> int:
    """One statement further while there is time, then far, and to other statements in each run."""
    return 1 if time.monotonic() < end else random.randint(9, 25)


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_every_schedule_survives_every_fault_at_every_statement(site: Site, fork_server: Forks, tell: Tell) -> None:
    """Where the time of an operation runs out, it is swept with wider steps, and it is said."""
    tally, end, thinned = MessageCounts(), time.monotonic() + seconds(0.05), []
    names = sorted(SCHEDULES)
    for at, name in enumerate(names):
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - at)
        sweep(fork_server, site, name, list(Mode), tally, partial(step_until, until))
        if step_until(until) > 1:
            thinned.append(name)
    tell(tally.report(f"crash points of schedules on {site.engine}", thinned))
    assert tally.wrong == []
    assert set(tally.points) == set(SCHEDULES)
