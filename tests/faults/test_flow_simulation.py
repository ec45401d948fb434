"""Workflows made of dice, on clusters that live through kills, freezes, faults and clock jumps in made-up time."""

from __future__ import annotations

import gc
import logging
import time
from pathlib import Path

import pytest

from tests.faults.flow_simulation import simulate_flows
from tests.faults.proofs import Tell, seconds

EVENTS = 60
MANY = 1000
KEPT = Path(__file__).with_name("flow_seeds.txt")
"""Seeds that once failed, and stay for ever: one in a line, and why."""


def kept() -> list[int]:
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.fixture(autouse=True)
def _quiet() -> object:
    """Workers complain a lot in there, and so do the workflows that killed ones have dropped."""
    logging.disable(logging.CRITICAL)
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*range(1, 5), *kept()}))
def test_a_program_does_what_it_says_on_a_cluster_in_trouble(seed: int) -> None:
    wrong, effects = simulate_flows(seed, EVENTS)
    assert wrong == [], f"seed {seed}"
    assert effects > 0


@pytest.mark.proof(long=True)
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("half", [0, 1])
def test_many_programs_do_what_they_say_on_clusters_in_trouble(half: int, tell: Tell) -> None:
    """Two halves, for two processes: each a share of the time, or `MANY` seeds where the machine is quick enough."""
    first = (int(time.time()) % 1_000_000 * 2 + half) * MANY
    end, failed, happened, told = time.monotonic() + seconds(0.12), [], 0, 0
    for seed in range(first, first + MANY):
        wrong, effects = simulate_flows(seed, EVENTS)
        failed += [f"seed {seed}: {what}" for what in wrong]
        happened, told = happened + effects, told + 1
        if time.monotonic() >= end:
            break
    tell(f"simulation of flows: {told} seeds from {first}, {happened} steps and tasks, {len(failed)} broken")
    assert failed == [], f"write these seeds into {KEPT.name}"
