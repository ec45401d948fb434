"""Every operation, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards a clean process finishes the work, and nothing is lost, doubled, changed or left behind (I1 to I4, I6).
"""

from __future__ import annotations

import pytest

from semel.testing import Mode
from tests.faults.forks import Forks
from tests.faults.operations import OPERATIONS
from tests.faults.points import Tally, sweep
from tests.faults.site import Site

REPRESENTATIVE = (
    "cancel_running", "claim_plain", "clean", "enqueue_after_failure", "enqueue_fresh_key", "give_back", "recover",
    "redrive", "settle_completed", "settle_with_a_retry",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_operation_killed_at_any_statement_loses_and_doubles_nothing(site: Site, fork_server: Forks) -> None:
    tally = Tally()
    for name in REPRESENTATIVE:
        sweep(fork_server, site, name, [Mode.KILL], tally)
    for name in ("life_of_a_worker", "life_of_a_worker_with_limits"):
        sweep(fork_server, site, name, [Mode.ERROR], tally, step=4)
    print(tally.report(f"crash points on {site.engine}, a part"))
    assert tally.wrong == []
    assert tally.points.total() > 50


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_every_operation_survives_every_fault_at_every_statement(site: Site, fork_server: Forks) -> None:
    tally = Tally()
    for name in OPERATIONS:
        sweep(fork_server, site, name, list(Mode), tally)
    print(tally.report(f"crash points on {site.engine}"))
    assert tally.wrong == []
    assert set(tally.points) == set(OPERATIONS)
