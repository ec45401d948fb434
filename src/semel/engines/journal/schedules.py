"""The schedules of a namespace: verbs over their scripts, and where their runs are executed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from semel.contract.reconciliation import Difference
from semel.contract.runs import Change, ScheduleInfo, ScheduleRun, SkippedSlots
from semel.contract.times import from_micros, instant, micros
from semel.engine.declarations import Declared
from semel.engine.failure_log import RepeatedFailures
from semel.engine.protocol import Finding, WorkerState
from semel.engine.schedules import Owner, ScheduleDefinition, ScheduleRow
from semel.engine.ticks import Start
from semel.engines.journal import schedule_scripts as scripts
from semel.engines.journal.backfills import StoredBackfills
from semel.engines.journal.reconcile import Reconciliation
from semel.engines.journal.runs import LaneMissing, Runs
from semel.engines.journal.schedule_health import CLOCKS_DIFFER, END_OF_TIME, LATE, examine_schedules
from semel.engines.journal.schedule_scripts import AT_ONCE, TickResult, TickScript, info_of
from semel.engines.journal.script import ScriptRunner
from semel.engines.journal.silence import SILENT, Silence
from semel.errors import EngineUnavailable
from semel.runtime.retries import retry_unavailable
from semel.settings import Settings

log = logging.getLogger("semel.schedules")
TRIES: Final = 5
START_TIME: Final = 0.05
"""Seconds that a start may take, on an engine that is not silent."""
MOST_LATE: Final = 1000
"""So many late schedules are counted."""
PUT_OFF: Final = timedelta(seconds=10)
"""Until a schedule is looked at again that could not be: a worker of a newer release may be able to."""


class StoredSchedules:
    """The schedules of one namespace in a database. Their runs are in the same one, or elsewhere."""

    def __init__(
        self, store: ScriptRunner, namespace: str, where: Runs, settings: Settings, on_change: Callable[[], None]
    ) -> None:
        self._store = store
        self._namespace = namespace
        self._where = where
        self._max_payload = settings.max_payload
        self._keep = settings.run_retention
        self._on_change = on_change
        self._failures = RepeatedFailures()
        self._hung_since: float | None = None
        """When runs were started and the engine was silent, by the monotonic clock, until the end of the next look."""
        self._one_at_a_time = asyncio.Lock()
        """Around a transaction with what is prepared for it, and what follows it."""
        self.backfills = StoredBackfills(store, namespace, where, settings, on_change, self._one_at_a_time)

    async def apply(
        self, declared: Sequence[Declared], *, prune: Collection[Owner], take_over: bool, write: bool
    ) -> list[Change]:
        """See EngineSchedules."""
        for _ in range(TRIES):
            schedules = [one for one in declared if one.what == "schedule"]
            rows = [row for one in schedules if (row := await self._get(one.id)) is not None]
            options = [one.definition.options for one in schedules]
            options += [_definition(row).options for row in rows]
            async with self._one_at_a_time:
                await self._where.prepare(rows, options, start=write)
                try:
                    changes = await retry_unavailable(
                        self._store.run,
                        scripts.apply,
                        self._namespace,
                        list(declared),
                        prune,
                        take_over,
                        write,
                        self._where,
                        self._max_payload,
                    )
                except LaneMissing:
                    self._where.start_over()
                    continue
                if write:
                    await self._where.follow_up(())
            self._on_change()
            return changes
        raise EngineUnavailable("the schedules were changed again and again by others: try again.")

    async def _get(self, id: str) -> ScheduleRow | None:
        return await retry_unavailable(self._store.run, scripts.get, self._namespace, id)

    async def get(self, id: str) -> ScheduleInfo | None:
        """See EngineSchedules."""
        row = await self._get(id)
        return None if row is None else (await self._describe([row]))[0]

    async def page(self, after: str, limit: int) -> list[ScheduleInfo]:
        """See EngineSchedules."""
        return await self._describe(
            await retry_unavailable(self._store.run, scripts.page, self._namespace, after, limit)
        )

    async def _describe(self, rows: Sequence[ScheduleRow]) -> list[ScheduleInfo]:
        """Schedules as people see them: what has ended since somebody looked last does not run any more."""
        going = await self._where.find_going(self._store, rows)
        return [info_of(row, going) for row in rows]

    async def definition(self, id: str) -> ScheduleDefinition | None:
        """See EngineSchedules."""
        row = await self._get(id)
        return None if row is None else _definition(row)

    async def pause(self, id: str, note: str | None) -> bool:
        """See EngineSchedules."""
        return await retry_unavailable(self._store.run, scripts.pause, self._namespace, id, note)

    async def resume(self, id: str, note: str | None) -> bool:
        """See EngineSchedules."""
        found = await retry_unavailable(self._store.run, scripts.resume, self._namespace, id, note)
        self._on_change()
        return found

    async def delete(self, id: str) -> bool:
        """See EngineSchedules."""
        return await retry_unavailable(self._store.run, scripts.delete, self._namespace, id)

    async def trigger(self, id: str, request_key: str) -> tuple[str, str, bool] | None:
        """See EngineSchedules."""
        for _ in range(TRIES):
            row = await self._get(id)
            if row is None:
                return None
            async with self._one_at_a_time:
                await self._where.prepare([row], [_definition(row).options])
                run, where, most = self._store.run, self._where, self._max_payload
                try:
                    found = await retry_unavailable(run, scripts.trigger, self._namespace, id, request_key, where, most)
                except LaneMissing:
                    self._where.start_over()
                    continue
                await self._where.follow_up(())
            if found is None:
                return None
            key, duplicate = found
            return key, await self._store.run(scripts.execution_of, self._namespace, key), duplicate
        raise EngineUnavailable(f"schedule {id!r} was changed again and again by others: try again.")

    async def runs(self, id: str, before: datetime | None, limit: int) -> list[ScheduleRun]:
        """See EngineSchedules."""
        end = END_OF_TIME if before is None else instant(before)
        return await retry_unavailable(self._store.run, scripts.runs, self._namespace, id, end, limit)

    async def skipped(self, id: str, before: datetime | None, limit: int) -> list[SkippedSlots]:
        """See EngineSchedules."""
        end = END_OF_TIME if before is None else instant(before)
        return await retry_unavailable(self._store.run, scripts.skipped_slots, self._namespace, id, end, limit)

    async def find_slot(self, id: str, key: str, slot: datetime | None) -> ScheduleRun | SkippedSlots | None:
        """See EngineSchedules."""
        at = None if slot is None else instant(slot)
        return await retry_unavailable(self._store.run, scripts.find_slot, self._namespace, id, key, at)

    async def forget(self) -> None:
        """Forget records of runs and of skipped slots that are past their time, in small batches."""
        while await self._store.run(scripts.forget, self._namespace, micros(self._keep)) >= AT_ONCE:
            pass
        await self.backfills.forget()

    async def run_due(self, down_for: float = 0.0) -> None:
        """Look at every schedule that is due, and carry on backfills.

        `down_for`: so many seconds ago the engine ceased to answer whoever looks now.
        """
        await self.tick(round(down_for * 1e6))
        await self.backfills.carry_on()

    async def tick(self, down_for: int = 0) -> int:
        """Look at every schedule that is due; how many there were. `down_for`: as in `run_due`, in microseconds."""
        hung_since = self._hung_since
        try:
            return await self._tick(down_for)
        finally:
            if self._hung_since == hung_since:
                self._hung_since = None

    async def _tick(self, down_for: int) -> int:
        found = None if self._where.asks_first else await self._look_at_next(scripts.tick, down_for)
        if found is None:
            return await self._find_and_look(down_for)
        if found < AT_ONCE:  # somebody else looks at the others, if there are any
            return found
        # There are more, as it seems: while the database writes what came of one look, the next is decided.
        both = asyncio.gather(
            self._look_on(scripts.tick, down_for), self._look_on(scripts.tick_beside, down_for), return_exceptions=True
        )
        known = True
        for one in await both:
            if isinstance(one, BaseException):
                raise one
            found += one[0]
            known = known and one[1]
        return found if known else found + await self._find_and_look(down_for)

    def _ask(self, down_for: int) -> Silence:
        """The engine is asked now: what is known of its silence."""
        if self._hung_since is not None:
            down_for = max(down_for, Silence(0, self._hung_since).measure())
        return Silence(down_for, time.monotonic())

    async def _look_on(self, tick: TickScript, down_for: int) -> tuple[int, bool]:
        """Look at schedules that are due until there are no more: how many, and whether that could be done with all."""
        looked = 0
        while (found := await self._look_at_next(tick, down_for)) is not None:
            looked += found
            if found < AT_ONCE:
                return looked, True
        return looked, False

    async def _look_at_next(self, tick: TickScript, down_for: int) -> int | None:
        """Look at the next schedules that are due; how many there were. None: they must be known beforehand."""
        try:
            silence = self._ask(down_for)
            result = await self._store.run(tick, self._namespace, None, self._where, self._max_payload, silence)
            await self._follow_up(result.started, silence)
        except LaneMissing:
            return None
        except EngineUnavailable:
            raise
        except Exception as error:  # one of them, which is found when each is looked at alone
            log.debug("schedules could not be looked at together", exc_info=error)
            return None
        _log_result(result)
        return result.looked

    async def _find_and_look(self, down_for: int) -> int:
        """Look at every schedule that is due, after it was found and prepared for; how many there were."""
        looked = 0
        while True:
            silence = self._ask(down_for)
            rows = await self._store.run(scripts.find_due, self._namespace, AT_ONCE)
            found = await self._look_at(rows, silence) if rows else 0
            looked += found
            if not rows or found < len(rows):  # somebody else looks at the others
                return looked

    async def _look_at(self, rows: Sequence[ScheduleRow], silence: Silence) -> int:
        """Look at schedules together; if that fails, at each alone, so that one holds up no other."""
        try:
            return await self._look_at_together(rows, silence)
        except LaneMissing:
            self._where.start_over()
            return len(rows)  # they are still due
        except EngineUnavailable:
            raise
        except Exception as error:
            if len(rows) > 1:
                return sum([await self._look_at([row], silence) for row in rows])
            id_ = rows[0].id
            self._failures.log(log, id_, error, f"schedule {id_} could not be looked at; it is tried again")
            await self._store.run(scripts.put_off, self._namespace, id_, micros(PUT_OFF))
            return 1

    async def _look_at_together(self, rows: Sequence[ScheduleRow], silence: Silence) -> int:
        async with self._one_at_a_time:
            await self._where.prepare(rows, [_definition(row).options for row in rows])
            ids, run, most = [row.id for row in rows], self._store.run, self._max_payload
            result = await run(scripts.tick, self._namespace, ids, self._where, most, silence)
            await self._follow_up(result.started, silence)
        _log_result(result)
        return result.looked

    async def _follow_up(self, started: Sequence[Start], silence: Silence) -> None:
        """See to it that runs begin. If the engine was silent after it was asked for the time, the next look knows."""
        await self._where.follow_up(started)
        if time.monotonic() - silence.asked_at > SILENT + START_TIME * len(started):
            self._hung_since = silence.asked_at

    async def start_pending(self) -> None:
        """Start runs that somebody else has decided and not started."""
        async with self._one_at_a_time:
            await self._where.start_pending()

    async def next_due(self) -> float | None:
        """Seconds until somebody has to look again; None: not before something changes."""
        at, now = await self._store.run(scripts.next_due, self._namespace)
        return None if at is None else max(0.0, (at - now) / 1e6)

    async def reconcile(self, *, fix: bool) -> list[Difference]:
        """See EngineSchedules."""
        async with self._one_at_a_time:
            look = Reconciliation(self._store, self._namespace, self._where, self._keep, fix=fix)
            found = await look.run()
        if fix:
            self._on_change()
        return found

    async def count_late(self) -> tuple[int, float]:
        """See EngineSchedules."""
        return await retry_unavailable(self._store.run, scripts.late, self._namespace, micros(LATE), MOST_LATE)

    async def examine(self, workers: Sequence[WorkerState]) -> list[Finding]:
        """What could be wrong with them, for `semel doctor`."""
        async with self._one_at_a_time:
            return await examine_schedules(self._store, self._namespace, self._where, workers)


def _definition(row: ScheduleRow) -> ScheduleDefinition:
    return ScheduleDefinition.from_bytes(row.definition, row.id)


def _log_result(result: TickResult) -> None:
    """Say what happened."""
    for start in result.started if log.isEnabledFor(logging.INFO) else ():
        log.info("schedule %s runs for %s as %s", start.schedule, start.slot.isoformat(), start.request.key)
    for one in result.advances:
        for skipped in one.skipped_now:
            told = SkippedSlots(one.id, skipped.reason, skipped.first, skipped.last, skipped.count, skipped.into)
            log.warning("schedule %s did not run: %s", one.id, told)
        if one.paused_now:
            log.error("schedule %s is %s. Resume it with: semel schedules resume %s", one.id, one.note, one.id)
        if one.ahead is not None and one.ahead > CLOCKS_DIFFER:
            log.error(
                "schedule %s is covered until %s, which is %s ahead of the database's clock: a clock ran ahead and "
                "came back. Nothing fires until then",
                one.id,
                from_micros(one.cursor).isoformat(),
                one.ahead,
            )
