"""A schedule in virtual time: random ticks, runs of random length, outages and pauses, and a ledger of every slot."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from semel.contract.slot_policy import Misfire, Overlap, SkipReason, SlotPolicy, Stop
from semel.contract.slots import Pause, ScheduleState, SlotRun, Tick, due
from semel.contract.timing import Timing

NO_SLOT = (SkipReason.EXCLUDED, SkipReason.BEFORE_START)


@dataclass
class World:
    """One schedule, and everything that became of its slots."""

    timing: Timing
    policy: SlotPolicy
    state: ScheduleState
    dice: Random
    longest_run: timedelta
    active: dict[datetime, datetime] = field(default_factory=dict)
    """The slots that run, and when they will have ended."""
    started: list[SlotRun] = field(default_factory=list)
    reasons: Counter[SkipReason] = field(default_factory=Counter)
    fates: dict[datetime, str] = field(default_factory=dict)
    """What was decided about each slot: the first of it."""
    most_active: int = 0
    longest_line: int = 0

    def tick(self, now: datetime) -> Tick:
        """Look at the schedule, check what comes of it, and do it."""
        self.active = {slot: end for slot, end in self.active.items() if end > now}
        before = replace(self.state, active=len(self.active))
        found = due(self.timing, self.policy, before, now)
        assert found == due(self.timing, self.policy, before, now)
        self.check_every_slot(before, found)
        self.check_windows(found)
        if found.stop is Stop.TERMINATE:
            self.active.clear()
        elif found.stop is Stop.CANCEL:
            self.active = {slot: min(end, now + timedelta(seconds=30)) for slot, end in self.active.items()}
        for run in found.start:
            self.started.append(run)
            self.active[run.slot] = now + self.dice.random() * self.longest_run
        self.most_active = max(self.most_active, len(self.active))
        self.longest_line = max(self.longest_line, len(found.line))
        self.state = ScheduleState(
            cursor=found.cursor,
            line=found.line,
            catching_up=found.catching_up,
            window_from=found.window_from,
            window_slots=found.window_slots,
            paused_since=self.state.paused_since,
            pauses=found.pauses,
        )
        return found

    def pause(self, now: datetime) -> None:
        """Pause the schedule."""
        if self.state.paused_since is None:
            self.state = _with(self.state, now, self.state.pauses)

    def resume(self, now: datetime) -> None:
        """Let it go on."""
        if self.state.paused_since is not None:
            self.state = _with(self.state, None, (*self.state.pauses, Pause(self.state.paused_since, now)))

    def check_every_slot(self, before: ScheduleState, found: Tick) -> None:
        """Every slot in (old cursor, new cursor] has exactly one fate, and what had one has no other."""
        assert found.cursor >= before.cursor
        slots = self.timing.oldest(1_000_000, before.cursor, found.cursor)
        waited = {run.slot for run in before.line}
        fates: Counter[datetime] = Counter(run.slot for run in (*found.start, *found.line))
        for one in found.skipped:
            self.reasons[one.reason] += one.count
            if one.reason in NO_SLOT:
                continue
            inside = [slot for slot in (*slots, *sorted(waited)) if one.first <= slot <= one.last]
            if one.first in waited:
                inside = [one.first]
            assert len(inside) == one.count, (one, inside[:3])
            fates.update(inside)
            self.fates.update((slot, one.reason.value) for slot in inside)
            assert (one.into is not None) is (one.reason is SkipReason.COMPRESSED)
        assert fates == Counter({*slots, *waited}), (before, found)
        self.fates.update((run.slot, "started") for run in found.start)

    def check_windows(self, found: Tick) -> None:
        """A window has as many slots as it says, ends with its own and begins at a slot."""
        for run in found.start:
            assert self.timing.count(run.window_start, run.slot) == run.slots
            last = self.started[-1] if self.started else None
            assert last is None or last.slot <= run.window_start < run.slot
            assert run.slots == 1 or self.policy.misfire is Misfire.COMPRESS

    def check_the_end(self, begin: datetime, now: datetime) -> None:
        """Every slot that came has one fate; no slot was started twice; runs overlap only where they may."""
        slots = self.timing.oldest(1_000_000, begin, self.state.cursor)
        waiting = {run.slot for run in self.state.line}
        assert {*self.fates} == {*slots} - waiting
        runs = [run.slot for run in self.started]
        assert runs == sorted({*runs})
        assert {slot for slot, fate in self.fates.items() if fate == "started"} == {*runs}
        if self.policy.overlap is not Overlap.ALLOW_ALL:
            assert self.most_active <= 1
        # Single times all run, one after the other, however many have passed. Each part can have one on time.
        room = self.policy.max_buffer + self.policy.max_catchup + len(self.timing.parts)
        room = len(self.timing.at) if self.timing.one_shot else room
        assert self.longest_line <= room
        covered = [slot for run in self.started for slot in self.timing.oldest(10**6, run.window_start, run.slot)]
        assert len(covered) == len({*covered})
        compressed = {slot for slot, fate in self.fates.items() if fate == "compressed"}
        dropped = {slot for slot, fate in self.fates.items() if fate not in ("compressed", "started")}
        assert {*covered} >= {*runs}
        if self.policy.misfire is Misfire.COMPRESS:
            assert covered == [slot for slot in slots if runs and slot <= runs[-1]]  # nothing falls between windows
        else:
            assert {*covered}.isdisjoint(dropped)
            assert not compressed


def _with(state: ScheduleState, since: datetime | None, pauses: tuple[Pause, ...]) -> ScheduleState:
    return replace(state, active=0, paused_since=since, pauses=pauses)


def live(world: World, begin: datetime, length: timedelta, calm: timedelta) -> None:
    """Tick at random for a while, with outages and pauses in it."""
    now, end, dice = begin, begin + length, world.dice
    while now < end:
        chance = dice.random()
        if chance < 0.01:
            now += dice.random() * calm * 100  # an outage
        elif chance < 0.02:
            world.pause(now)
        elif chance < 0.05:
            world.resume(now)
        now += dice.random() * calm
        found = world.tick(now)
        if found.look_again is not None and dice.random() < 0.5:
            now = max(now, min(found.look_again, end)) + timedelta(milliseconds=dice.randrange(900))
            world.tick(now)
    world.resume(now)
    for _ in range(300):
        now += world.longest_run
        if not world.tick(now).line:
            break
    world.check_the_end(begin, now)
