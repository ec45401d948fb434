"""Workflows made of dice, on clusters that live through kills, freezes, faults and clock jumps in made-up time."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.faults.flow_simulation import simulate_flows
from tests.faults.proofs import seconds

EVENTS = 60
MANY = 2000
KEPT = Path(__file__).with_name("flow_seeds.txt")
"""Seeds that once failed, and stay for ever: one in a line, and why."""


def kept() -> list[int]:
    lines = KEPT.read_text(encoding="utf-8").splitlines()
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


@pytest.fixture(autouse=True)
def _quiet() -> object:
    """Workers complain a lot in there."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("seed", sorted({*range(1, 5), *kept()}))
def test_a_program_does_what_it_says_on_a_cluster_in_trouble(seed: int) -> None:
    wrong, effects = simulate_flows(seed, EVENTS)
    assert wrong == [], f"seed {seed}"
    assert effects > 0


@pytest.mark.proof
@pytest.mark.timeout(7200)
def test_many_programs_do_what_they_say_on_clusters_in_trouble() -> None:
    """Two processes, a share of the time, and `MANY` seeds where the machine is quick enough."""
    first, end = int(time.time()) % 1_000_000 * 10_000, time.monotonic() + seconds(0.2)
    failed, happened, told = [], 0, 0
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        seeds = iter(range(first, first + MANY))
        while time.monotonic() < end and (some := list(islice(seeds, 20))):
            for seed, (wrong, effects) in zip(some, pool.map(one, some), strict=True):
                failed += [f"seed {seed}: {what}" for what in wrong]
                happened, told = happened + effects, told + 1
    print(f"simulation of flows: {told} seeds from {first}, {happened} steps and tasks, {len(failed)} broken")
    assert failed == [], f"write these seeds into {KEPT.name}"


def one(seed: int) -> tuple[list[str], int]:
    """In a process of its own."""
    logging.disable(logging.CRITICAL)
    return simulate_flows(seed, EVENTS)
