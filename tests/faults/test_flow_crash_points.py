"""Workflows and entities, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards a clean worker finishes the work: everything ends as it should, what was recorded did not run again, no
signal or message is lost or doubled, nothing is left behind and every journal can be replayed (I1 to I4, I6, I7).
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from semel.testing import Mode
from tests.faults.conftest import new_site
from tests.faults.flow_shop import FlowShop
from tests.faults.forks import Forks, forks
from tests.faults.points import OPERATIONS, Tally, sweep
from tests.faults.proofs import seconds
from tests.faults.site import Site

FLOWS = [name for name, operation in OPERATIONS.items() if operation.shop is FlowShop]
ENOUGH = 12.0
"""Seconds that `make test` has for this on each database."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_flow_goes_on_wherever_its_worker_died(site: Site, fork_server: Forks) -> None:
    tally, end = Tally(), time.monotonic() + ENOUGH
    for name in ("signal_with_a_key", "terminate", "send_to_a_new_entity"):
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 3)
    for name in ("life_with_transactions", "life_with_signals_and_continue_as_new", "life_of_an_entity"):
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 11 if time.monotonic() < end else 100)
        sweep(fork_server, site, name, [Mode.ERROR], tally, lambda: 23 if time.monotonic() < end else 100)
    print(tally.report(f"crash points of flows on {site.engine}, a part"))
    assert tally.wrong == []
    assert tally.points.total() > 10


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_every_flow_survives_every_fault_at_every_statement(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Both databases at the same time, each with a fork server of its own."""
    sites = []
    for engine in ("sqlite", "postgres"):
        (tmp_path / engine).mkdir()
        sites.append(new_site(engine, tmp_path / engine, request))
    with ThreadPoolExecutor(2) as both:
        tallies = list(both.map(_whole_matrix, sites))
    for site, tally in zip(sites, tallies, strict=True):
        print(tally.report(f"crash points of flows on {site.engine}"))
    print(f"crash points of flows in all: {sum(tally.points.total() for tally in tallies)}")
    assert [wrong for tally in tallies for wrong in tally.wrong] == []
    assert all(set(tally.points) == set(FLOWS) for tally in tallies)


def _whole_matrix(site: Site) -> Tally:
    """Every statement of every operation. Each gets its part of the time, and where that runs out it is swept with
    wider steps, and it is said. Which statements are left out is another matter each time.
    """
    tally, end = Tally(), time.monotonic() + seconds(0.25)
    names = sorted(FLOWS, key=lambda name: name.startswith("life"))
    with forks() as server:
        for at, name in enumerate(names):
            until = time.monotonic() + (end - time.monotonic()) / (len(names) - at)
            sweep(server, site, name, list(Mode), tally, partial(_step, name, until))
            thin = ", thinned for time" if _step(name, until) > 1 else ""
            print(f"  {site.engine:8} {name}: {tally.points[name]} points{thin}", flush=True)
    return tally


def _step(name: str, until: float) -> int:
    if time.monotonic() < until:
        return 1
    return random.randint(9, 25) if name.startswith("life") else random.randint(2, 4)
