"""Slots are missed because the engine is silent: the worker that asked, and got its answer in the end, says so."""

from __future__ import annotations

import time
from typing import Any

import pytest

from semel.contract.slot_policy import SkipReason
from semel.engines.journal import schedules as stored_schedules
from semel.engines.journal import silence
from tests.conformance.test_schedules import HOUR, first_slot
from tests.world import World

HOURS = 5


class Clock:
    """Instead of the time module, for those who measure how long the engine is silent."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Hanging:
    """A store, or where runs are executed, that is silent for some hours when it is asked once."""

    after_it = False
    """It has done what it was asked for, and does not say so for long."""

    def __init__(self, inner: Any, world: World, clock: Clock, name: str) -> None:
        self._inner, self._world, self._clock, self._name = inner, world, clock, name

    def __getattr__(self, name: str) -> Any:
        return self._ask if name == self._name else getattr(self._inner, name)

    async def _ask(self, *args: Any) -> Any:
        name, self._name = self._name, ""
        if self.after_it:
            answer = await getattr(self._inner, name)(*args)
            await self._hang()
            return answer
        await self._hang()
        return await getattr(self._inner, name)(*args)

    async def _hang(self) -> None:
        self._clock.ahead += HOURS * 3600
        await self._world.jump(f"{HOURS}h")


@pytest.mark.parametrize("hangs", ["run", "commit", "follow_up", "nothing"])
async def test_slots_that_fired_while_the_engine_was_silent(
    world: World, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    app, begin, clock = world.app(), first_slot(world), Clock()
    monkeypatch.setattr(silence, "time", clock)
    monkeypatch.setattr(stored_schedules, "time", clock)

    @app.task
    async def report() -> None: ...

    await app.schedules.put("report", report, every="1h", start_at=begin, end_at=begin + 9 * HOUR, overlap="allow_all")
    engine: Any = await app.engine.schedules()
    schedules = engine.inner
    await world.jump("61m")
    if hangs == "run":
        await schedules.tick()
        schedules._store = Hanging(schedules._store, world, clock, hangs)
    elif hangs == "commit":
        schedules._store = Hanging(schedules._store, world, clock, "run")
        schedules._store.after_it = True
        await schedules.tick()
    elif hangs == "follow_up":
        schedules._where = Hanging(schedules._where, world, clock, hangs)
        await schedules.tick()
    else:
        await schedules.tick()
        await world.jump(f"{HOURS}h")
    await world.jump("10m")
    await schedules.tick()
    skipped, *_ = await app.schedules.skipped("report")  # the newest; one that fired before may be late
    assert skipped.reason is (SkipReason.LATE if hangs == "nothing" else SkipReason.ENGINE_DOWN)
    assert skipped.count in (HOURS - 1, HOURS)
