"""Events, broken at every statement: before it, after it with the reply lost, after it with SIGKILL.

Afterwards the caller publishes again and a clean worker goes on: each event has each of its runs once, none is lost,
and every run agrees with its record and with its event.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from semel.testing import Mode
from tests.faults.event_shop import EventShop
from tests.faults.forks import Forks
from tests.faults.points import OPERATIONS, MessageCounts, sweep
from tests.faults.proofs import Tell
from tests.faults.site import Site
from tests.faults.test_schedule_crash_points import step_until

EVENTS = [name for name, operation in OPERATIONS.items() if operation.shop is EventShop]
ENOUGH = 5.0
"""Seconds that `make test` has for this on each database."""
ENOUGH_FOR_PROOF = 60.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_event_runs_wherever_its_publisher_died(site: Site, fork_server: Forks) -> None:
    tally, end = MessageCounts(), time.monotonic() + ENOUGH
    names = ("publish_event", "deliver_due_events", "replay_failed_run", "gather_events", "close_windows")
    for name in names:
        sweep(fork_server, site, name, [Mode.KILL], tally, lambda: 3 if time.monotonic() < end else 10)
    print(tally.report(f"crash points of events on {site.engine}, a part"))
    assert tally.wrong == []
    assert set(tally.points) == set(names)


@pytest.mark.proof(long=True)
@pytest.mark.timeout(3600)
def test_every_event_survives_every_fault_at_every_statement(site: Site, fork_server: Forks, tell: Tell) -> None:
    """Where the time of an operation runs out, it is swept with wider steps, and it is said."""
    tally, end, thinned = MessageCounts(), time.monotonic() + ENOUGH_FOR_PROOF, []
    for at, name in enumerate(sorted(EVENTS)):
        until = time.monotonic() + (end - time.monotonic()) / (len(EVENTS) - at)
        sweep(fork_server, site, name, list(Mode), tally, partial(step_until, until))
        if step_until(until) > 1:
            thinned.append(name)
    tell(tally.report(f"crash points of events on {site.engine}", thinned))
    assert tally.wrong == []
    assert set(tally.points) == set(EVENTS)
