"""`semel demo schedules`: three minutes of virtual time with an outage, under the three misfire policies."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.text import Text

from semel import App, Run
from semel.cli.command import Exit
from semel.cli.output import console
from semel.contract.runs import ScheduleInfo, ScheduleRun, SkippedSlots
from semel.contract.slot_policy import Misfire, SkipReason

BEGIN: Final = datetime(2030, 1, 1, tzinfo=UTC)
EVERY: Final = 10
LENGTH: Final = 180
OUTAGE: Final = range(60, 121)
"""Seconds of virtual time in which no worker runs."""
LONGEST: Final = 60.0
POLL_EVERY: Final = 0.005
POLICIES: Final = tuple(policy.value for policy in Misfire)
SLOTS: Final = tuple(BEGIN + timedelta(seconds=at) for at in range(EVERY, LENGTH + 1, EVERY))
WIDTH: Final = 4


@dataclass
class Simulation:
    """An app whose clock stands still between steps, and what ran in it."""

    now: float = BEGIN.timestamp()
    ran: list[tuple[str, datetime]] = field(default_factory=list)
    """Policies and slots in the order in which their runs began."""

    async def play(self) -> dict[str, Policy]:
        """Run one schedule for each policy, with an outage, and read what is on record afterwards."""
        app = App("sqlite:///:memory:", namespace="demo", config=None, clock=lambda: self.now)

        @app.task(retry=1)
        async def collect(policy: str, run: Run) -> None:
            self.ran.append((policy, run.scheduled_for))

        async with app:
            for policy in Misfire:
                await app.schedules.put(
                    policy.value, collect, policy.value, every=EVERY, start_at=SLOTS[0], misfire=policy.value
                )
            at = 0
            while (at := await self._next_step(app, at)) <= LENGTH:
                self.now = BEGIN.timestamp() + at
                await self._look(app)
            return {policy: await self._read(app, policy) for policy in POLICIES}

    async def _next_step(self, app: App, at: int) -> int:
        """The next second in which something is to be done and a worker runs."""
        waits = any(one.waiting for one in await app.schedules.list())
        following = at + 1 if waits else (at // EVERY + 1) * EVERY
        return OUTAGE.stop if following in OUTAGE else following

    async def _look(self, app: App) -> None:
        """Start a worker, and stop it when it has started all that is due; what it has begun it finishes."""
        before = {one.id: one for one in await app.schedules.list()}
        async with app.worker():
            while True:
                settled = self._is_settled(before, await app.schedules.list())
                if settled and len(self.ran) == sum([len(await app.schedules.runs(policy)) for policy in POLICIES]):
                    return
                await asyncio.sleep(POLL_EVERY)

    def _is_settled(self, before: Mapping[str, ScheduleInfo], after: Sequence[ScheduleInfo]) -> bool:
        """Whether every slot that has come is decided, and what waited has got on."""
        now = datetime.fromtimestamp(self.now, UTC)
        decided = all(one.next_slot is not None and one.next_slot > now for one in after)
        return decided and all(not before[one.id].waiting or one.waiting != before[one.id].waiting for one in after)

    async def _read(self, app: App, policy: str) -> Policy:
        runs, skipped = await app.schedules.runs(policy), await app.schedules.skipped(policy)
        return Policy(policy, runs, skipped, [slot for name, slot in self.ran if name == policy])


@dataclass(frozen=True)
class Policy:
    """What is on record of one schedule, and the slots that its function was run for, in this order."""

    name: str
    runs: Sequence[ScheduleRun]
    skipped: Sequence[SkippedSlots]
    ran: Sequence[datetime]

    @property
    def lost(self) -> int:
        """Slots that no run covers."""
        return sum(one.count for one in self.skipped if one.reason is not SkipReason.COMPRESSED)

    @property
    def doubts(self) -> list[str]:
        """Why it is not true that each slot is accounted for once; empty when it is true."""
        covered: Counter[datetime] = Counter()
        for run in self.runs:
            covered.update(run.scheduled_for - timedelta(seconds=EVERY * back) for back in range(run.slots))
        for one in self.skipped:
            if one.reason is not SkipReason.COMPRESSED:
                covered.update(one.first + timedelta(seconds=EVERY * on) for on in range(one.count))
        wrong = {slot: covered[slot] for slot in SLOTS if covered[slot] != 1}
        doubts = [f"{self.name}: {_clock(slot)} is accounted for {count} times" for slot, count in wrong.items()]
        if covered.keys() - set(SLOTS):
            doubts.append(f"{self.name}: {len(covered.keys() - set(SLOTS))} slots are made up")
        if list(self.ran) != sorted(run.scheduled_for for run in self.runs):
            doubts.append(f"{self.name}: {len(self.runs)} runs are on record, and {len(self.ran)} ran, or in disorder")
        return doubts

    def draw(self) -> Text:
        """One sign for each slot."""
        runs = {run.scheduled_for: run for run in self.runs}
        line = Text(f"  {self.name:<10}")
        for slot in SLOTS:
            run = runs.get(slot)
            if run is None:
                compressed = any(
                    one.first <= slot <= one.last for one in self.skipped if one.reason is SkipReason.COMPRESSED
                )
                sign, style = ("◌", "cyan") if compressed else ("·", "yellow")
            elif run.slots > 1:
                sign, style = f"◆{run.slots}", "bold cyan"
            else:
                late = run.created_at - run.scheduled_for > timedelta(seconds=EVERY / 2)
                sign, style = ("◆", "bold cyan") if late else ("●", "green")
            line.append(f"{sign:>{WIDTH}}", style)
        return line

    def describe(self) -> str:
        """Describe in words what became of the slots."""
        wide = max((run.slots for run in self.runs), default=1)
        late = sum(run.created_at - run.scheduled_for > timedelta(seconds=EVERY / 2) for run in self.runs)
        parts = [f"{len(self.runs)} runs"]
        if self.lost:
            reasons = sorted({one.reason.value for one in self.skipped})
            parts.append(f"{self.lost} slots skipped ({', '.join(reasons)})")
        if late:
            parts.append(f"{late} of them late, oldest first")
        if wide > 1:
            parts.append(f"one of them for {wide} slots at once")
        return ", ".join(parts)


def play_schedules() -> Exit:
    """Play the demo and say what came of it; FAILED if its last line is not true."""
    logging.getLogger("semel").addHandler(logging.NullHandler())  # what is skipped is drawn below
    away = f"no worker runs from {_spell(OUTAGE.start)} to {_spell(OUTAGE.stop - 1)}"
    _line(f"A job every {EVERY} s for {LENGTH // 60} minutes of virtual time; {away}.", "bold")
    simulation = Simulation()
    found = asyncio.run(_within(simulation))
    _line()
    _line(_axis())
    _line(_workers())
    for policy in found.values():
        _line(policy.draw())
    _line()
    _line("  ● on time   ◆ late   ◌ part of the run that is marked with a count   · skipped", "dim")
    _line()
    for policy in found.values():
        _line(f"  misfire={policy.name + ':':<10}{policy.describe()}")
    _line()
    doubts = [doubt for policy in found.values() for doubt in policy.doubts]
    if doubts:
        _line(f"NOT once: {'; '.join(doubts)}.", "bold red")
        return Exit.FAILED
    _line(sum_up(found), "bold green")
    return Exit.OK


def _line(text: str | Text = "", style: str = "") -> None:
    console().print(Text(text, style) if isinstance(text, str) else text, soft_wrap=True)


async def _within(simulation: Simulation) -> dict[str, Policy]:
    async with asyncio.timeout(LONGEST):
        return await simulation.play()


def sum_up(found: Mapping[str, Policy]) -> str:
    """The last line, counted from what ran and what is on record."""
    runs = ", ".join(f"{name} {len(policy.ran)}" for name, policy in found.items())
    lost = sum(policy.lost for policy in found.values())
    slots = f"once: {len(SLOTS)} slots under {len(found)} policies"
    return f"{slots}, runs: {runs}; {lost} slots skipped, each with its reason"


def _axis() -> Text:
    return Text(
        f"  {'':<10}" + "".join(f"{_clock(slot) if at % 3 == 2 else '':>{WIDTH}}" for at, slot in enumerate(SLOTS)),
        "dim",
    )


def _workers() -> Text:
    line = Text(f"  {'worker':<10}", "dim")
    for slot in SLOTS:
        down = int((slot - BEGIN).total_seconds()) in OUTAGE
        line.append("╌" * WIDTH if down else "━" * WIDTH, "red" if down else "green")
    return line


def _clock(slot: datetime) -> str:
    return _spell(int((slot - BEGIN).total_seconds()))


def _spell(seconds: int) -> str:
    return f"{seconds // 60}:{seconds % 60:02}"
