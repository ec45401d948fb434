"""Fault 19: schedules of every misfire x overlap pair, looked at by five schedulers that are killed at random."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from tests.faults.proofs import Tell, seconds
from tests.faults.schedule_simulation import Simulation
from tests.faults.site import Site

SEED = 7


@pytest.fixture(autouse=True)
def _quiet() -> object:
    """Every skipped slot is a warning."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_no_slot_is_missed_or_doubled_while_schedulers_die(site: Site) -> None:
    story = asyncio.run(Simulation(site, SEED).run(3.0))
    assert story.wrong == [], f"seed {SEED}"
    assert story.kills > 0


@pytest.mark.proof(long=True)
@pytest.mark.timeout(7200)
def test_no_slot_is_ever_missed_or_doubled(site: Site, tell: Tell) -> None:
    seed = int(time.time()) % 1_000_000
    story = asyncio.run(Simulation(site, seed).run(seconds(0.05)))
    tell(
        f"simulation of schedules on {site.engine}: seed {seed}, {story.slots} slots, {story.steps} steps, "
        f"{story.kills} schedulers killed, {len(story.wrong)} broken"
    )
    assert story.wrong == [], f"seed {seed}"
