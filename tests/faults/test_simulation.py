"""Clusters that live through kills, freezes, faults and clock jumps in made-up time; each seed is a story."""

from __future__ import annotations

import gc
import logging
import time

import pytest

from tests.faults.proofs import Tell, seconds
from tests.faults.simulation import simulate

SEEDS = [*range(1, 11), 5010, 933009048]
"""Stories for every `make test`; seeds that once failed are kept here for ever."""


@pytest.fixture(autouse=True)
def _quiet() -> object:
    """Workers complain a lot in there, and so do the workflows that killed ones have dropped."""
    logging.disable(logging.CRITICAL)
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_in_trouble_does_everything_once(seed: int) -> None:
    wrong, effects = simulate(seed, events=250)
    assert wrong == [], f"seed {seed}"
    assert effects > 0


@pytest.mark.proof(long=True)
@pytest.mark.timeout(7200)
def test_many_clusters_in_trouble_do_everything_once(tell: Tell) -> None:
    end, seed, happened = time.monotonic() + seconds(0.06), int(time.time()) % 1_000_000 * 1000, 0
    first = seed
    while seed == first or time.monotonic() < end:
        wrong, effects = simulate(seed, events=250)
        assert wrong == [], f"seed {seed}, 250 events"
        seed, happened = seed + 1, happened + effects
    tell(f"simulation: seeds {first} to {seed - 1}, {happened} effects")
