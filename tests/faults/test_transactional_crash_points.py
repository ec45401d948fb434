"""Starts in the caller's transaction, broken at every statement and at the commit: row and execution, both or neither.

Afterwards the caller repeats itself and a worker runs what is there: each order has one row and ran once.
"""

from __future__ import annotations

import time

import pytest

from semel.testing import Mode
from tests.faults.forks import Forks
from tests.faults.points import OPERATIONS, MessageCounts, sweep
from tests.faults.proofs import Tell
from tests.faults.site import Site
from tests.faults.transactional_operations import CallerShop

STARTS = sorted(name for name, operation in OPERATIONS.items() if operation.shop is CallerShop)
ENOUGH = 5.0
"""Seconds that `make test` has for this on each database."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_row_and_its_start_are_committed_together_or_not_at_all(site: Site, fork_server: Forks) -> None:
    tally, end = MessageCounts(), time.monotonic() + ENOUGH
    for name in ("commit_and_start", "commit_and_start_again"):
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 1 if time.monotonic() < end else 5)
    print(tally.report(f"crash points of starts in a transaction on {site.engine}, a part"))
    assert tally.wrong == []
    assert tally.points.keys() == {"commit_and_start", "commit_and_start_again"}


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_every_start_in_a_transaction_survives_every_fault(site: Site, fork_server: Forks, tell: Tell) -> None:
    tally = MessageCounts()
    for name in STARTS:
        sweep(fork_server, site, name, list(Mode), tally)
    tell(tally.report(f"crash points of starts in a transaction on {site.engine}"))
    assert tally.wrong == []
    assert sorted(tally.points) == STARTS
