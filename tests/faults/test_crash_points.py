"""Every operation, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards a clean process finishes the work, and nothing is lost, doubled, changed or left behind (I1 to I4, I6).
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
from tests.faults.forks import Forks, forks
from tests.faults.points import OPERATIONS, Tally, sweep
from tests.faults.proofs import seconds
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
    tally, end = Tally(), time.monotonic() + ENOUGH
    for name in REPRESENTATIVE:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 1 if time.monotonic() < end else 3)
    for name in ("life_of_a_worker", "life_of_a_worker_with_limits"):
        sweep(fork_server, site, name, [Mode.ERROR], tally, lambda: 13 if time.monotonic() < end else 40)
    print(tally.report(f"crash points on {site.engine}, a part"))
    assert tally.wrong == []
    assert tally.points.total() > 20


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_every_operation_survives_every_fault_at_every_statement(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Both databases at the same time, each with a fork server of its own."""
    sites = []
    for engine in ("sqlite", "postgres"):
        (tmp_path / engine).mkdir()
        sites.append(new_site(engine, tmp_path / engine, request))
    with ThreadPoolExecutor(2) as both:
        tallies = list(both.map(_whole_matrix, sites))
    for site, tally in zip(sites, tallies, strict=True):
        print(tally.report(f"crash points on {site.engine}"))
    print(f"crash points in all: {sum(tally.points.total() for tally in tallies)}")
    assert [wrong for tally in tallies for wrong in tally.wrong] == []
    assert all(set(tally.points) == set(TASKS) for tally in tallies)


def _whole_matrix(site: Site) -> Tally:
    """Every statement of every operation. The lives of workers come last: they are made of operations that were
    swept before. Where the time runs out, the rest is swept with wider steps, other ones each time, and it is said.
    """
    tally, end = Tally(), time.monotonic() + seconds(0.38)
    with forks() as server:
        for name in sorted(TASKS, key=lambda operation: operation.startswith("life")):
            sweep(server, site, name, list(Mode), tally, partial(_step, name, end))
            thin = ", thinned for time" if _step(name, end) > 1 else ""
            print(f"  {site.engine:8} {name}: {tally.points[name]} points{thin}", flush=True)
    return tally


def _step(name: str, end: float) -> int:
    if time.monotonic() < end:
        return 1
    return 7 if name.startswith("life") else random.randint(2, 4)
