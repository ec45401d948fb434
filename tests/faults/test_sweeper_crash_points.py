"""Sweeps, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards the sweep runs again and a clean worker does what is left: each stuck order ran once.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from semel.testing import Mode
from tests.faults.forks import Forks
from tests.faults.points import OPERATIONS, MessageCounts, step_of, sweep
from tests.faults.proofs import Tell, seconds
from tests.faults.site import Site
from tests.faults.sweeper_operations import SweeperShop

SWEEPS = sorted(name for name, operation in OPERATIONS.items() if operation.shop is SweeperShop)
ENOUGH = 5.0
"""Seconds that `make test` has for this on each database."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sweep_that_was_killed_recovers_each_row_once(site: Site, fork_server: Forks) -> None:
    tally, end = MessageCounts(), time.monotonic() + ENOUGH
    names = ("sweep_that_starts_five", "sweep_that_meets_others")
    for name in names:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 1 if time.monotonic() < end else 5)
    print(tally.report(f"crash points of sweeps on {site.engine}, a part"))
    assert tally.wrong == []
    assert set(tally.points) == set(names)


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_every_sweep_survives_every_fault_at_every_statement(site: Site, fork_server: Forks, tell: Tell) -> None:
    tally, end, thinned = MessageCounts(), time.monotonic() + seconds(0.03), []
    for at, name in enumerate(SWEEPS):
        until = time.monotonic() + (end - time.monotonic()) / (len(SWEEPS) - at)
        sweep(fork_server, site, name, list(Mode), tally, partial(step_of, name, until))
        if time.monotonic() >= until:
            thinned.append(name)
    tell(tally.report(f"crash points of sweeps on {site.engine}", thinned))
    assert tally.wrong == []
    assert sorted(tally.points) == SWEEPS
