"""The app that the faults of events happen to: runs for events, each effect in the ledger."""

from __future__ import annotations

from typing import Any

import semel
from semel.engines.journal.events import StoredEvents
from semel.engines.journal.worker import JournalWorker
from tests.faults.flow_shop import FlowShop
from tests.faults.shop import SOON as RETRY
from tests.faults.site import Site
from tests.world import AlwaysThere, eventually


class EventShop(FlowShop):
    """One process's view of a site, with functions that run for events."""

    def __init__(self, site: Site, **options: Any) -> None:
        super().__init__(site, **options)
        app, ledger = self.app, self.ledger

        @app.task(retry=RETRY)
        async def bill(event: semel.EventEnvelope, run: semel.Run) -> str:
            ledger.record_here()
            return event.event_id

        @app.task(retry=1)
        async def refuse(event: semel.EventEnvelope) -> None:
            raise ValueError("no")

        @app.workflow
        async def settle(ctx: semel.Context, run: semel.Run) -> str:
            await ctx.execute_task(self.charge, run.key)
            return run.key

        @app.task(retry=RETRY)
        async def index(events: list[semel.EventEnvelope], run: semel.Run) -> int:
            ledger.record_here()
            return len(events)

        self.bill, self.refuse, self.settle, self.index = bill, refuse, settle, index

    async def events(self) -> StoredEvents:
        """The events as the engine sees them."""
        return await self.engine.events()

    async def subscribe(self, **functions: Any) -> None:
        """Have functions run for invoices that were paid, under these ids."""
        for id, function in functions.items():
            if id not in self.app.events.declared:
                self.app.on_event("invoice.paid", id=id)(function)
        await self.app.apply()

    async def gather(self, **options: Any) -> None:
        """Have `index` run for invoices that were paid, with options that gather or limit events."""
        if "index" not in self.app.events.declared:
            self.app.on_event("invoice.paid", id="index", **options)(self.index)
        await self.app.apply()
        await (await self.events()).matches(paid("any"))  # the subscriptions are known

    async def conclude(self) -> None:
        """Everything to its end: every event that waited is delivered, no flow is due any more, every run has ended."""
        undelivered = (
            "select (select count(*) from semel_event where state = 'waiting') "
            "+ (select count(*) from semel_event_flow where due_at is not null)"
        )
        left = "select count(*) from (select execution from semel_ready union all select execution from semel_later) x"
        async with self.app.worker(lease="30s", concurrency=8) as worker:
            assert isinstance(worker, JournalWorker)
            worker.chores["retention"].next_due = float("inf")
            worker.heart.reachability = AlwaysThere()

            async def none() -> bool:
                if (await self.site.sql(undelivered))[0][0] == 0 and (await self.site.sql(left))[0][0] == 0:
                    return True
                await self.site.advance(1)
                worker.chores["events"].due_in(0)
                return False

            await eventually(none)
        await super().conclude()


def paid(id: str, cents: int = 900) -> semel.EventEnvelope:
    """An invoice was paid."""
    return semel.EventEnvelope(event_id=id, source="/shop", type="invoice.paid", data={"cents": cents})
