"""The records database beside a Temporal cluster, broken at every statement: both or neither, nothing in between."""

from __future__ import annotations

from collections import Counter

import pytest

from semel.testing import Mode
from tests.faults.forks import Forks
from tests.faults.proofs import Tell
from tests.faults.record_points import OPERATIONS, sweep
from tests.faults.site import Site


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_records_killed_at_any_statement_are_whole(site: Site, fork_server: Forks) -> None:
    points: Counter[str] = Counter()
    wrong: list[str] = []
    for operation in ("reserve_after_failure", "settle", "transact"):
        sweep(fork_server, site, operation, [Mode.KILL], points, wrong)
    assert wrong == []
    assert points.total() >= 16


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_records_survive_every_fault_at_every_statement(site: Site, fork_server: Forks, tell: Tell) -> None:
    points: Counter[str] = Counter()
    wrong: list[str] = []
    for operation in OPERATIONS:
        sweep(fork_server, site, operation, Mode, points, wrong)
    tell(f"crash points of records on {site.engine}: {points.total()}, {dict(points)}")
    assert wrong == []
    assert set(points) == set(OPERATIONS)
