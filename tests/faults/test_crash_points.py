"""Every operation, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards a clean process finishes the work, and nothing is lost, doubled, changed or left behind (I1 to I4, I6).
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from semel.testing import Mode
from tests.faults.forks import Forks
from tests.faults.points import OPERATIONS, MessageCounts, in_order, step_of, sweep
from tests.faults.proofs import Tell, seconds
from tests.faults.shop import Shop
from tests.faults.site import Site

TASKS = [name for name, operation in OPERATIONS.items() if operation.shop is Shop]

REPRESENTATIVE = (
    "claim_plain",
    "enqueue_after_failure",
    "recover",
    "redrive",
    "settle_completed",
    "settle_with_a_retry",
)
ENOUGH = 10.0
"""Seconds that `make test` has for this on each database; `make proof` leaves nothing out."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_operation_killed_at_any_statement_loses_and_doubles_nothing(site: Site, fork_server: Forks) -> None:
    tally, end = MessageCounts(), time.monotonic() + ENOUGH
    for name in REPRESENTATIVE:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 1 if time.monotonic() < end else 3)
    lives = ("life_of_a_worker", "life_of_a_worker_with_limits")
    for name in lives:
        sweep(fork_server, site, name, [Mode.ERROR], tally, lambda: 13 if time.monotonic() < end else 40)
    print(tally.report(f"crash points on {site.engine}, a part"))
    assert tally.wrong == []
    assert set(tally.points) == {*REPRESENTATIVE, *lives}  # how many points there is time for depends on the machine


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_every_operation_survives_every_fault_at_every_statement(site: Site, fork_server: Forks, tell: Tell) -> None:
    """Every statement of every operation. The lives of workers come last: they are made of operations that were
    swept before. Each has its share of the time; where that runs out, the steps become wider, and it is said.
    """
    tally, end, thinned = MessageCounts(), time.monotonic() + seconds(0.2), []
    names = in_order(TASKS)
    for at, name in enumerate(names):
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - at)
        sweep(fork_server, site, name, list(Mode), tally, partial(step_of, name, until))
        if step_of(name, until) > 1:
            thinned.append(name)
    tell(tally.report(f"crash points on {site.engine}", thinned))
    assert tally.wrong == []
    assert set(tally.points) == set(TASKS)
