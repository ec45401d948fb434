"""The backfills of a namespace: verbs over their scripts, and what workers do to carry them on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final

from semel.contract.backfill import (
    BackfillInfo,
    BackfillPlan,
    BackfillStatus,
    PlannedSlot,
    before,
    check_range,
    take_slots,
)
from semel.contract.times import from_micros, micros
from semel.engine.backfills import BackfillRequest, BackfillRow, describe_backfill
from semel.engine.failure_log import RepeatedFailures
from semel.engine.schedules import ScheduleDefinition
from semel.engines.journal import backfill_scripts as scripts
from semel.engines.journal import schedule_scripts
from semel.engines.journal.runs import LaneMissing, Runs
from semel.engines.journal.script import ScriptRunner
from semel.errors import EngineUnavailable, KeyConflict
from semel.runtime.retries import retry_unavailable
from semel.settings import Settings

log = logging.getLogger("semel.schedules")
AT_ONCE: Final = 100
"""Backfills that are looked at before schedules are looked at again."""
STEPS: Final = 20
"""Steps of all backfills before schedules are looked at again: a long one holds up no slot."""
PAGE: Final = 500
"""Slots of a plan whose records are read together."""
PUT_OFF: Final = timedelta(seconds=10)
"""Until a backfill is looked at again that could not be."""


class StoredBackfills:
    """The backfills of one namespace in a database. Their runs are where those of their schedules are."""

    def __init__(
        self,
        store: ScriptRunner,
        namespace: str,
        where: Runs,
        settings: Settings,
        on_change: Callable[[], None],
        one_at_a_time: asyncio.Lock,
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._where = where
        self._max_payload = settings.max_payload
        self._keep = settings.run_retention
        self._on_change = on_change
        self._failures = RepeatedFailures()
        self._one_at_a_time = one_at_a_time
        """Around a transaction with what is prepared for it, and what follows it; shared with the schedules."""

    async def create(self, request: BackfillRequest) -> BackfillInfo | None:
        """See EngineBackfills."""
        row = await retry_unavailable(self._store.run, scripts.create, self._namespace, request)
        if row is None:
            return None
        if not request.is_same(row):
            raise _conflict(request, row)
        self._on_change()
        return describe_backfill(row)

    async def plan(self, request: BackfillRequest) -> BackfillPlan | None:
        """See EngineBackfills."""
        schedule = await retry_unavailable(self._store.run, schedule_scripts.get, self._namespace, request.schedule)
        if schedule is None:
            return None
        definition = ScheduleDefinition.from_bytes(schedule.definition, schedule.id)
        start, end = check_range(definition.timing, request.start, request.end, from_micros(schedule.now))
        cursor, planned = before(start), list[PlannedSlot]()
        while slots := take_slots(definition.timing, cursor, end, PAGE):
            cursor = slots[-1]
            async with self._one_at_a_time:
                asked = await retry_unavailable(
                    self._store.run, scripts.executions_of_slots, self._namespace, request.schedule, slots
                )
                await self._where.look_at(asked)
                planned += await retry_unavailable(
                    self._store.run, scripts.plan, self._namespace, request, slots, self._where, micros(self._keep)
                )
        return BackfillPlan(request.schedule, start, end, request.rerun, request.force, tuple(planned))

    async def get(self, id: str) -> BackfillInfo | None:
        """See EngineBackfills."""
        row = await retry_unavailable(self._store.run, scripts.get, self._namespace, id)
        return None if row is None else describe_backfill(row)

    async def list(self, schedule: str | None, limit: int) -> Sequence[BackfillInfo]:
        """See EngineBackfills."""
        rows = await retry_unavailable(self._store.run, scripts.newest, self._namespace, schedule, limit)
        return [describe_backfill(row) for row in rows]

    async def change(
        self, id: str, status: BackfillStatus, among: Collection[BackfillStatus], note: str | None
    ) -> BackfillInfo | None:
        """See EngineBackfills."""
        row = await retry_unavailable(self._store.run, scripts.change, self._namespace, id, status, among, note)
        self._on_change()
        return None if row is None else describe_backfill(row)

    async def forget(self) -> None:
        """Forget backfills that ended longer ago than runs are on record."""
        keep = micros(self._keep)
        while await self._store.run(scripts.forget, self._namespace, keep, AT_ONCE) >= AT_ONCE:
            pass

    async def carry_on(self) -> int:
        """Carry on every backfill that is due, for a while; how many steps were made."""
        steps = 0
        while steps < STEPS and (rows := await self._store.run(scripts.find_due, self._namespace, AT_ONCE)):
            found = sum([await self._carry_on(row) for row in rows])
            steps += found
            if found < len(rows):  # somebody else carries on the others
                break
        return steps

    async def _carry_on(self, row: BackfillRow) -> bool:
        """Make one step of a backfill; one that fails holds up no other. False: somebody else has made it."""
        try:
            return await self._step(row)
        except LaneMissing:
            self._where.start_over()
            return True  # it is still due
        except EngineUnavailable:
            raise
        except Exception as error:
            self._failures.log(log, row.id, error, f"backfill {row.id} could not go on; it is tried again")
            await self._store.run(scripts.put_off, self._namespace, row.id, micros(PUT_OFF))
            return True

    async def _step(self, row: BackfillRow) -> bool:
        async with self._one_at_a_time:
            await self._where.prepare((), [row.read_definition().options])
            asked = await self._store.run(scripts.executions_to_ask, self._namespace, row)
            await self._where.look_at(asked)
            result = await self._store.run(
                scripts.step, self._namespace, row.id, self._where, self._max_payload, micros(self._keep)
            )
            if result is None:
                return False
            await self._where.follow_up(result.started)
        for start in result.started:
            log.info(
                "backfill %s runs schedule %s for %s as %s, generation %d",
                row.id,
                start.schedule,
                start.slot.isoformat(),
                start.request.key,
                start.generation,
            )
        if result.status != row.phase:
            note = "" if result.row.note is None else f": {result.row.note}"
            log.info("backfill %s of schedule %s is %s%s", row.id, row.schedule, result.status, note)
        return True


def _conflict(request: BackfillRequest, row: BackfillRow) -> KeyConflict:
    offered = (request.schedule, request.start, request.end, request.rerun, request.force, request.max_active)
    stored = (
        row.schedule,
        from_micros(row.start_at),
        from_micros(row.end_at),
        row.rerun,
        bool(row.forced),
        row.max_active,
    )
    names = ("schedule", "start", "end", "rerun", "force", "max_active")
    pairs = zip(names, zip(stored, offered, strict=True), strict=True)
    differing = {name: pair for name, pair in pairs if pair[0] != pair[1]}
    told = ", ".join(f"{name}: {old} -> {new}" for name, (old, new) in differing.items())
    return KeyConflict(
        f"request key {request.id!r} belongs to another backfill ({told}). Use another key, or see: "
        f"semel backfills show {request.id}",
        existing_execution_id=row.id,
        status=row.phase,
        differences=differing,
    )
