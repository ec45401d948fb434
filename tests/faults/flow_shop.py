"""The app that the faults of flows happen to: workflows and an entity of every kind, each effect in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import semel
from semel.engines.journal.worker import JournalWorker
from tests.faults.shop import Shop
from tests.faults.site import Site
from tests.world import SOON, AlwaysThere, eventually

LEFT = (
    "select count(*) from (select execution from semel_ready union all select execution from semel_later"
    " union all select execution from semel_flow where due_at < {soon}) x"
)


class FlowShop(Shop):
    """One process's view of a site, with workflows."""

    def __init__(self, site: Site, patience: float = SOON, **options: Any) -> None:
        super().__init__(site, **options)
        self.broken_code = False
        """What is deployed does not fit the journals."""
        self.before_end: Callable[[], Awaitable[None]] | None = None
        self.patience = patience
        self._define_plain()
        self._define_hard()
        self._define_entity()

    async def touch(self, value: str) -> str:
        """A step with an effect."""
        self.ledger.record_here()
        return value

    def pay(self, tx: Any, who: str) -> int:
        """Two statements in the engine's own database."""
        tx.execute("insert into till (who) values ($1)", who)
        return int(tx.execute("select count(*) from till where who = $1", who)[0][0])

    def _define_plain(self) -> None:
        app, touch = self.app, self.touch

        @app.workflow
        async def whole(ctx: semel.Context, order: str) -> list[str]:
            first = await ctx.step(touch, "a", name="reserve")
            ctx.publish("state", "reserved")
            ctx.search_attributes["order"] = order
            second = await ctx.execute_task(self.charge, order)
            await ctx.sleep("10ms")
            third, fourth = await asyncio.gather(
                ctx.step(touch, "c", name="pack"), ctx.execute_task(self.flaky, f"{order}-f")
            )
            ctx.publish("state", "shipped")
            await ctx.enqueue(self.charge, f"{order}-later")
            return [first, second, third, fourth]

        @app.workflow
        async def patient(ctx: semel.Context) -> list[str]:
            if self.broken_code:
                await ctx.step(touch, "x", name="another")
            got = [await ctx.wait_signal("go")]
            await ctx.step(touch, "w", name="between")
            got.append(await ctx.wait_signal("go", timeout="30d"))
            try:
                got.append(await ctx.wait_signal("never", timeout="5ms"))
            except TimeoutError:
                got.append("late")
            return got

        @app.workflow
        async def payer(ctx: semel.Context) -> list[Any]:
            first = await ctx.transaction(self.pay, ctx.workflow_id)
            try:
                await ctx.transaction(self._pay_and_fail, ctx.workflow_id)
            except semel.ExecutionFailed:
                second = "failed"
            return [first, second, await ctx.step(touch, "p", name="paid")]

        @app.workflow
        async def counting(ctx: semel.Context, n: int, got: list[str]) -> list[str]:
            got = [*got, await ctx.step(touch, f"{n}", name=f"count-{n}"), await ctx.wait_signal("go")]
            if n:
                ctx.continue_as_new(n - 1, got)
            return got

        self.whole, self.patient, self.payer, self.counting = whole, patient, payer, counting

    def _pay_and_fail(self, tx: Any, who: str) -> None:
        tx.execute("insert into till (who) values ($1)", f"{who} never")
        raise ValueError("changed its mind")

    def _define_hard(self) -> None:
        app, touch = self.app, self.touch

        @app.workflow
        async def child(ctx: semel.Context, name: str) -> str:
            await ctx.step(touch, name, name="child")
            return await ctx.wait_signal("go") if name == "late" else name

        @app.workflow
        async def parent(ctx: semel.Context, id: str) -> list[str]:
            first = await ctx.execute_workflow(child, "early", workflow_id=f"{id}.1")
            second = await ctx.start_workflow(child, "late", workflow_id=f"{id}.2", on_parent_close="cancel")
            await second.signal("go", "from parent", dedup_key="p")
            await ctx.start_workflow(child, "late", workflow_id=f"{id}.3", on_parent_close="terminate")
            return [first, await second.result()]

        @app.workflow
        async def failing(ctx: semel.Context) -> None:
            await ctx.start_workflow(child, "late", workflow_id=f"{ctx.workflow_id}.1", on_parent_close="cancel")
            try:
                await ctx.execute_task(self.doomed, "d")
            except semel.ExecutionFailed:
                await ctx.step(touch, "f", name="noted")
                raise

        @app.workflow
        async def stopped(ctx: semel.Context) -> None:
            await ctx.start_workflow(child, "late", workflow_id=f"{ctx.workflow_id}.1", on_parent_close="terminate")
            try:
                await asyncio.gather(ctx.wait_signal("never"), ctx.execute_task(self.charge, "late", delay="1h"))
            finally:
                await ctx.step(touch, "u", name="clean-up")
                await ctx.execute_task(self.charge, "refund")

        self.child, self.parent, self.failing, self.stopped = child, parent, failing, stopped

    def _define_entity(self) -> None:
        shop = self

        @self.app.entity
        @dataclass
        class Account:
            total: int = 0
            seen: list[str] = field(default_factory=list)

            @semel.handler
            async def add(self, ctx: semel.EntityContext, cents: int) -> int:
                if cents < 0:
                    raise ValueError(f"not {cents}")
                self.total += cents
                return self.total

            @semel.handler
            async def charge(self, ctx: semel.EntityContext, order: str) -> str:
                order = await ctx.execute_task(shop.charge, order)
                await ctx.step(shop.touch, order, name=f"noted-{order}")
                self.total += 100
                return order

            @semel.handler
            async def stop(self, ctx: semel.EntityContext) -> int:
                ctx.publish(f"total-{ctx.run_id}", self.total)
                if shop.before_end is not None:
                    await ctx.step(shop.before_end, name="before-the-end")
                ctx.end()
                return self.total

        self.account = self.app.entity(Account, "a-1")

    async def until(self, text: str, lease: str = "30s") -> None:
        """A worker, until a count is zero. Its heart looks for work by itself after a third of the lease."""
        async with self.app.worker(lease=lease, concurrency=8) as worker:
            assert isinstance(worker, JournalWorker)
            worker.chores["retention"].next_due = float("inf")
            worker.heart.reachability = AlwaysThere()

            async def none() -> bool:
                soon = int((self.site.time() + 3600) * 1_000_000)
                return (await self.site.sql(text.format(soon=soon)))[0][0] == 0

            await eventually(none, self.patience)

    async def run_all(self) -> None:
        """A real worker until nothing is left to do; what waits for somebody goes on waiting."""
        await self.until(LEFT)

    async def conclude(self) -> None:
        """What waits for somebody gets it, as often as it asks; entities are ended."""
        await self.run_all()
        for at in range(4):
            living = await self.site.sql(
                "select f.execution, x.kind from semel_flow f join semel_execution x on x.id = f.execution"
            )
            if not living:
                return
            for id_, kind in living:
                if kind == "entity":
                    await self.account.send("stop")
                else:
                    await (await self.app.get(id_)).signal("go", f"end {at}", dedup_key=f"end {at}")
            await self.run_all()
