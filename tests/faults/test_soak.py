"""Minutes of mixed load with workers that are killed again and again, on both databases; then everything adds up."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from tests.faults.crowd import slow_tasks
from tests.faults.forks import Forks
from tests.faults.invariants import broken
from tests.faults.proofs import Tell, seconds
from tests.faults.shop import Shop
from tests.faults.site import Site


async def finish(site: Site, tell: Tell) -> list[str]:
    """What the killed ones left."""
    await site.advance(3600)
    async with Shop(site) as shop:
        slow_tasks(shop, 0.0)
        await shop.run_all(outlive_all=True)
    rows = await site.sql("select attempt, id from semel_execution")
    times = site.ledger.times()
    tell(f"soak on {site.engine}: {len(rows)} executions, {times.total()} effects")
    happened: dict[str, int] = {}
    for effect in site.ledger.effects():
        happened[effect.execution] = happened.get(effect.execution, 0) + 1
    wrong = [f"{id_}: {happened.get(id_, 0)} effects in {a} attempts" for a, id_ in rows if happened.get(id_, 0) > a]
    claims = [(effect.execution, effect.token) for effect in site.ledger.effects()]
    assert len(claims) == len(set(claims)), "a claim had its effect twice"
    return wrong + await broken(site, most=100)


def chaos(site: Site, server: Forks, length: float, seed: int) -> int:
    """Rounds of two clients, two workers that die and one that does not."""
    dice, kills, end = random.Random(seed), 0, time.monotonic() + length
    while time.monotonic() < end:
        plain, who = site.plain(), 2 * kills
        kind = "tests.faults.crowd:"
        answers = server.together(
            (kind + "steady_client", {"site": plain, "who": who, "seconds": 2.0}),
            (kind + "steady_client", {"site": plain, "who": who + 1, "seconds": 2.0}),
            (kind + "suicidal_worker", {"site": plain, "lease": "1s", "after": dice.uniform(0.2, 2.0)}),
            (kind + "suicidal_worker", {"site": plain, "lease": "1s", "after": dice.uniform(0.2, 2.0)}),
            (kind + "real_worker", {"site": plain, "lease": "1s", "seconds": 2.5}),
        )
        codes = [code for code, _ in answers]
        assert codes == [0, 0, -9, -9, 0], answers
        kills += 2
    return kills


@pytest.mark.slow
def test_a_short_soak_adds_up(site: Site, fork_server: Forks) -> None:
    kills = chaos(site, fork_server, 3.0, 1)
    assert asyncio.run(finish(site, print)) == []
    assert kills >= 2


@pytest.mark.proof(long=True)
@pytest.mark.timeout(7200)
def test_a_long_soak_adds_up(site: Site, fork_server: Forks, tell: Tell) -> None:
    kills = chaos(site, fork_server, seconds(0.03), int(time.time()))
    assert asyncio.run(finish(site, tell)) == []
    tell(f"soak on {site.engine}: {kills} workers killed")
