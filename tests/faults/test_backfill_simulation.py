"""Backfills that five workers carry on, who are killed at random: each slot runs as often as was asked for."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from semel.contract.backfill import BackfillInfo, BackfillStatus
from semel.contract.lifecycle import Status
from semel.contract.times import instant
from semel.engines.journal.claims import Claim
from semel.engines.journal.settle import Ending, settle
from semel.errors import EngineUnavailable
from semel.testing import Fault, Mode
from tests.faults.proofs import Tell
from tests.faults.schedule_invariants import run_faults
from tests.faults.schedule_shop import ScheduleShop
from tests.faults.site import Site

WORKERS = 5
SLOTS = 120
MINUTE = timedelta(minutes=1)
MOST_STEPS = 3000


class Simulation:
    """Two backfills of the same minutes: of what never ran, and of what failed as well. On-time slots go on."""

    def __init__(self, site: Site, seed: int, slots: int) -> None:
        self.site = site
        self.dice = random.Random(seed)
        self.slots = slots
        self.kills = 0
        self.steps = 0
        self.most_active: Counter[str] = Counter()
        self.workers: list[ScheduleShop] = []
        self.held: list[tuple[int, Claim]] = []

    async def run(self) -> list[str]:
        """Everything to its end, and what does not hold."""
        await self.site.reset()
        self.workers = [ScheduleShop(self.site) for _ in range(WORKERS)]
        shop = self.workers[0]
        end = datetime.fromtimestamp(self.site.time() // 60 * 60, UTC)
        begin = end - self.slots * MINUTE
        await shop.app.schedules.put("count", shop.count, cron="* * * * *", overlap="allow_all", misfire="catchup")
        for id_, rerun in (("first", "missing"), ("second", "failed")):
            await shop.app.schedules.backfill(
                "count", begin, end, rerun="failed" if rerun == "failed" else "missing", max_active=4, request_key=id_
            )
        while await self._are_open() and self.steps < MOST_STEPS:
            await self._step()
        wrong = await self._faults(begin, end)
        for one in self.workers:
            await one.app.close()
        return wrong

    async def _are_open(self) -> bool:
        return any(one.status.open or one.running for one in await self._infos())

    async def _infos(self) -> list[BackfillInfo]:
        found = list(await self.workers[0].app.schedules.backfills.list())
        for one in found:
            self.most_active[one.id] = max(self.most_active[one.id], len(one.running))
        return found

    async def _step(self) -> None:
        dice = self.dice
        self.steps += 1
        await self.site.advance(dice.choice([1.0, 6.0, 6.0, 20.0]))
        awake = dice.sample(range(WORKERS), dice.randint(1, 3))
        await asyncio.gather(*map(self._carry_on, awake))
        shop = self.workers[awake[0]]
        if dice.random() < 0.05:
            backfills, id_ = shop.app.schedules.backfills, dice.choice(["first", "second"])
            paused = (await backfills.get(id_)).status is BackfillStatus.PAUSED
            await (backfills.resume(id_) if paused else backfills.pause(id_))
        await self._end_runs(shop, dice.choice([0.5, 1.0]))

    async def _carry_on(self, number: int) -> None:
        shop, dice = self.workers[number], self.dice
        if dice.random() < 0.3:
            shop.store.tap = Fault(dice.randint(1, 20), dice.choice([Mode.BEFORE, Mode.ERROR]))
        try:
            schedules = await shop.schedules()
            await schedules.tick()
            await schedules.backfills.carry_on()
            shop.store.tap = None
        except EngineUnavailable:
            self.kills += 1
            self.workers[number] = ScheduleShop(self.site)
            await shop.app.close()

    async def _end_runs(self, shop: ScheduleShop, part: float) -> None:
        worker, claims = await shop.hold(1000)
        self.held += [(worker, claim) for claim in claims]
        ending = [one for one in self.held if self.dice.random() < part]
        self.held = [one for one in self.held if one not in ending]
        for owner in {owner for owner, _ in ending}:
            ends = [
                Ending(claim, self.dice.choice([Status.COMPLETED, Status.COMPLETED, Status.FAILED]))
                for own, claim in ending
                if own == owner
            ]
            await shop.store.run(settle, owner, ends)

    async def _faults(self, begin: datetime, end: datetime) -> list[str]:
        infos = {one.id: one for one in await self._infos()}
        wrong = [f"{id_} is {one.status}, {one.done} of {one.slots}" for id_, one in infos.items() if one.status.open]
        rows = await self.site.sql(
            "select r.slot, r.generation, x.status from semel_run r join semel_execution x on x.id = r.execution "
            f"where r.slot < {instant(end)} order by r.slot, r.generation"
        )
        fates: dict[int, list[str]] = {}
        for slot, generation, status in rows:
            fates.setdefault(slot, []).append(status)
            if generation != len(fates[slot]) - 1:
                wrong.append(f"slot {slot} has generation {generation} after {len(fates[slot]) - 1} runs")
        for number in range(self.slots):
            runs = fates.get(instant(begin + number * MINUTE), [])
            if not 1 <= len(runs) <= 2 or (len(runs) == 2 and runs[0] == "completed"):
                wrong.append(f"slot {number} has the runs {runs}")
        started = sum(one.started for one in infos.values())
        if started != len(rows):
            wrong.append(f"{started} runs are counted, and there are {len(rows)}")
        wrong += [f"{id_} had {most} active at once" for id_, most in self.most_active.items() if most > 4]
        return wrong + await run_faults(self.site.sql)


@pytest.fixture(autouse=True)
def _quiet() -> object:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_each_slot_of_a_backfill_runs_once_while_workers_die(site: Site) -> None:
    simulation = Simulation(site, 11, 30)
    assert asyncio.run(simulation.run()) == []
    assert simulation.kills > 0


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_no_slot_of_a_backfill_is_ever_lost_or_doubled(site: Site, tell: Tell) -> None:
    begin = time.monotonic()
    seeds, slots, kills = 0, 0, 0
    while time.monotonic() < begin + 40:
        seed = int(time.time() * 1000) % 1_000_000
        simulation = Simulation(site, seed, SLOTS)
        assert asyncio.run(simulation.run()) == [], f"seed {seed}"
        seeds, slots, kills = seeds + 1, slots + 2 * SLOTS, kills + simulation.kills
    tell(f"simulation of backfills on {site.engine}: {seeds} seeds, {slots} slots looked at, {kills} workers killed")
