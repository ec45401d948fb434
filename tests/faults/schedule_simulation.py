"""Five schedulers that are killed at random, in made-up time: runs end or hang, outages come, schedules pause."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from semel.contract.lifecycle import Status
from semel.contract.slot_policy import Misfire, Overlap
from semel.contract.times import instant
from semel.engines.journal.claims import Claim
from semel.engines.journal.settle import Ending, settle
from semel.errors import EngineUnavailable
from semel.testing import Fault, Mode
from tests.faults.schedule_invariants import Grid, run_faults, slot_faults
from tests.faults.schedule_shop import ScheduleShop
from tests.faults.site import Site

SCHEDULERS = 5
EVERY = timedelta(minutes=1)
PAIRS = [(misfire, overlap) for misfire in Misfire for overlap in Overlap]


@dataclass
class Story:
    """What happened."""

    seed: int
    slots: int = 0
    kills: int = 0
    steps: int = 0
    wrong: list[str] = field(default_factory=list)


class Simulation:
    """Schedules for every pair of policies, on one site."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.dice = random.Random(seed)
        self.story = Story(seed)
        self.schedulers: list[ScheduleShop] = []
        self.held: list[tuple[int, Claim]] = []
        self.ids: list[str] = []

    async def run(self, seconds: float) -> Story:
        """For so long, or at least a few steps; then everything to its end."""
        await self.site.reset()
        self.schedulers = [ScheduleShop(self.site) for _ in range(SCHEDULERS)]
        begin = await self._create()
        end = time.monotonic() + seconds
        while self.story.steps < 20 or time.monotonic() < end:
            await self._step()
            self.story.steps += 1
        await self._finish()
        until = self.site.time()
        grid = Grid(instant(begin), instant(begin + EVERY) - instant(begin), int((until - begin.timestamp()) // 60) + 1)
        for id_ in self.ids:
            self.story.wrong += await slot_faults(self.site.sql, id_, grid.slots())
        self.story.wrong += await run_faults(self.site.sql)
        self.story.slots = grid.count * len(self.ids)
        for shop in self.schedulers:
            await shop.app.close()
        return self.story

    async def _create(self) -> datetime:
        shop = self.schedulers[0]
        begin = datetime.fromtimestamp(self.site.time() // 1 + 60, UTC)
        for misfire, overlap in PAIRS:
            id_ = f"{misfire}.{overlap}"
            deadline = self.dice.choice([None, "10m"])
            await shop.app.schedules.put(
                id_, shop.count, every=EVERY, start_at=begin, misfire=misfire, overlap=overlap, start_deadline=deadline,
                max_catchup=3, max_buffer=5, grace=self.dice.choice([None, "150s"]),
            )  # fmt: skip
            self.ids.append(id_)
        return begin

    async def _step(self) -> None:
        """Time passes, some of the schedulers look at once, some of them die; runs end."""
        dice = self.dice
        await self.site.advance(dice.choices([20.0, 60.0, 130.0, dice.uniform(600, 3000)], [3, 10, 2, 1])[0])
        awake = dice.sample(range(SCHEDULERS), dice.randint(1, 3))
        await asyncio.gather(*map(self._look, awake))
        shop = self.schedulers[awake[0]]
        if dice.random() < 0.1:
            id_ = dice.choice(self.ids)
            paused = (await shop.app.schedules.get(id_)).paused_at is not None
            await (shop.app.schedules.resume(id_) if paused else shop.app.schedules.pause(id_))
        if dice.random() < 0.7:
            await self._end_runs(shop, dice.choice([0.3, 0.9]))

    async def _look(self, number: int) -> None:
        shop, dice = self.schedulers[number], self.dice
        if dice.random() < 0.3:
            shop.store.tap = Fault(dice.randint(1, 14), dice.choice([Mode.BEFORE, Mode.ERROR]))
        try:
            await (await shop.schedules()).tick()
            shop.store.tap = None
        except EngineUnavailable:
            self.story.kills += 1
            self.schedulers[number] = ScheduleShop(self.site)
            await shop.app.close()

    async def _end_runs(self, shop: ScheduleShop, part: float) -> None:
        worker, claims = await shop.hold(1000)
        self.held += [(worker, claim) for claim in claims]
        ending = [one for one in self.held if self.dice.random() < part]
        self.held = [one for one in self.held if one not in ending]
        for owner in {owner for owner, _ in ending}:
            status = self.dice.choice([Status.COMPLETED, Status.FAILED])
            ends = [Ending(claim, status) for own, claim in ending if own == owner]
            await shop.store.run(settle, owner, ends)

    async def _finish(self) -> None:
        """Nobody dies, no schedule is paused, every run ends: until nothing waits and no slot is open."""
        shop = self.schedulers[0]
        for id_ in self.ids:
            await shop.app.schedules.resume(id_)
        for _ in range(200):
            await self._end_runs(shop, 1.0)
            await self.site.advance(1)
            await (await shop.schedules()).tick()
            now = self.site.time()
            infos = await shop.app.schedules.list()
            if now % 60 < 50 and not any(one.waiting or now - one.cursor.timestamp() > 60 for one in infos):
                return
        self.story.wrong.append("I5: slots wait, and nothing runs")
