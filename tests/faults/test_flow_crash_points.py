"""Workflows and entities, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards a clean worker finishes the work: everything ends as it should, what was recorded did not run again, no
signal or message is lost or doubled, nothing is left behind and every journal can be replayed (I1 to I4, I6, I7).
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from semel.testing import Mode
from tests.faults.flow_shop import FlowShop
from tests.faults.forks import Forks
from tests.faults.points import OPERATIONS, MessageCounts, in_order, step_of, sweep
from tests.faults.proofs import Tell, seconds
from tests.faults.site import Site

FLOWS = [name for name, operation in OPERATIONS.items() if operation.shop is FlowShop]
ENOUGH = 12.0
"""Seconds that `make test` has for this on each database."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_flow_goes_on_wherever_its_worker_died(site: Site, fork_server: Forks) -> None:
    tally, end = MessageCounts(), time.monotonic() + ENOUGH
    short = ("signal_with_a_key", "terminate", "send_to_a_new_entity")
    lives = ("life_with_transactions", "life_with_signals_and_continue_as_new", "life_of_an_entity")
    for name in short:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 3)
    for name in lives:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 11 if time.monotonic() < end else 100)
        sweep(fork_server, site, name, [Mode.ERROR], tally, lambda: 23 if time.monotonic() < end else 100)
    print(tally.report(f"crash points of flows on {site.engine}, a part"))
    assert tally.wrong == []
    assert set(tally.points) == {*short, *lives}  # how many points there is time for depends on the machine


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_every_flow_survives_every_fault_at_every_statement(site: Site, fork_server: Forks, tell: Tell) -> None:
    """Every statement of every operation. Each life gets its part of the time, and where that runs out it is swept
    with wider steps, and it is said. Which statements are left out is another matter each time.
    """
    tally, end, thinned = MessageCounts(), time.monotonic() + seconds(0.2), []
    names = in_order(FLOWS)
    for at, name in enumerate(names):
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - at)
        sweep(fork_server, site, name, list(Mode), tally, partial(step_of, name, until))
        if step_of(name, until) > 1:
            thinned.append(name)
    tell(tally.report(f"crash points of flows on {site.engine}", thinned))
    assert tally.wrong == []
    assert set(tally.points) == set(FLOWS)
