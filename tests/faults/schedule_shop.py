"""The app that the faults of schedules happen to: runs of schedules, each effect in the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import semel
from semel.contract.times import instant
from semel.engines.journal.schedules import StoredSchedules
from semel.engines.journal.worker import JournalWorker
from tests.faults.flow_shop import FlowShop
from tests.faults.schedule_invariants import Grid
from tests.faults.shop import SOON as RETRY
from tests.faults.site import Site
from tests.world import AlwaysThere, eventually

HOUR = 3600.0
SLOTS = 6


class ScheduleShop(FlowShop):
    """One process's view of a site, with functions for schedules of six hourly slots."""

    def __init__(self, site: Site, **options: Any) -> None:
        super().__init__(site, **options)
        app, ledger = self.app, self.ledger

        @app.task(retry=RETRY)
        async def report(city: str, run: semel.Run) -> str:
            ledger.record_here()
            return f"{city} {run.scheduled_for.isoformat()}"

        @app.task(retry=RETRY)
        async def count() -> None:
            ledger.record_here()

        @app.workflow
        async def digest(ctx: semel.Context, run: semel.Run) -> str:
            await ctx.execute_task(self.charge, run.key)
            return run.scheduled_for.isoformat()

        self.report, self.count, self.digest = report, count, digest

    @property
    def begin(self) -> datetime:
        """A slot that is an hour away, at a whole hour of this site's clock, plus a second."""
        return datetime.fromtimestamp(self.site.time() // 1 + HOUR, UTC)

    async def schedules(self) -> StoredSchedules:
        """The schedules as the engine sees them."""
        return await self.engine.schedules()

    async def put(self, id: str, function: Any, *args: Any, begin: datetime, **options: Any) -> dict[str, Any]:
        """A schedule of six slots, and for the invariants what they are."""
        end = begin + timedelta(hours=SLOTS)
        await self.app.schedules.put(id, function, *args, every="1h", start_at=begin, end_at=end, **options)
        return {id: [grid_of(begin)]}

    async def conclude(self) -> None:
        """Everything to its end: no schedule is paused, every slot is past, every run has ended."""
        for one in await self.app.schedules.list():
            if one.paused_at is not None:
                await self.app.schedules.resume(one.id)
        for backfill in await self.app.schedules.backfills.list():
            await self.app.schedules.backfills.resume(backfill.id)
        undecided = (
            "select (select count(*) from semel_schedule where due_at is not null) + "
            "(select count(*) from semel_backfill where due_at is not null)"
        )
        left = "select count(*) from (select execution from semel_ready union all select execution from semel_later) x"
        async with self.app.worker(lease="30s", concurrency=8) as worker:
            assert isinstance(worker, JournalWorker)
            worker.chores["retention"].next_due = float("inf")
            worker.heart.reachability = AlwaysThere()

            async def none() -> bool:
                if (await self.site.sql(undecided))[0][0] == 0 and (await self.site.sql(left))[0][0] == 0:
                    return True
                await self.site.advance(1)
                worker.chores["schedules"].due_in(0)
                return False

            await eventually(none)
        await super().conclude()


def grid_of(begin: datetime, every: float = HOUR, count: int = SLOTS) -> list[int]:
    """Slots from a time on."""
    return Grid(instant(begin), round(every * 1e6), count).slots()
