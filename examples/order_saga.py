"""An order that is undone, step by step and in reverse, when a later step fails or the customer changes her mind.

    python examples/order_saga.py

The warehouse, the payment provider and the carrier are one stand-in that behaves like real ones: it does each thing
once per idempotency key, and undoing what was never done is harmless. Run it again in the same folder: the orders have
the same outcome, and the partners do nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rich import print

import semel

app = semel.App(namespace="order-saga")


@dataclass
class Partners:
    """Stands in for all external partners: `done` is what they did, by idempotency key."""

    done: dict[str, str] = field(default_factory=dict)
    refuses: frozenset[str] = frozenset({"ship o-2"})

    async def do(self, what: str, key: str) -> str:
        if what in self.refuses:
            raise ValueError(f"cannot {what}")
        return self.done.setdefault(key, what)


partners = Partners()


@dataclass
class Order:
    id: str
    cents: int
    grace: float = 3600.0
    """Seconds in which the customer may change her mind."""


@app.task
async def reserve(order_id: str) -> None:
    await partners.do(f"reserve {order_id}", semel.effect_key("reserve"))


@app.task
async def charge(order_id: str, cents: int) -> None:
    await partners.do(f"charge {order_id}", semel.effect_key("charge"))


@app.task(retry=semel.Retry(max_attempts=3, initial="10ms"))
async def ship(order_id: str) -> str:
    return await partners.do(f"ship {order_id}", semel.effect_key("ship"))


@app.task(retry=100)  # a compensation must not give up
async def release(order_id: str) -> None:
    await partners.do(f"release {order_id}", semel.effect_key("release"))


@app.task(retry=100)
async def refund(order_id: str) -> None:
    await partners.do(f"refund {order_id}", semel.effect_key("refund"))


@app.workflow
async def place_order(ctx: semel.Context, order: Order) -> str:
    """Reserve, charge, wait, ship. Register each undo before its step: a step that failed may still have happened."""
    undo: list[semel.Call[None]] = []
    try:
        undo.append(release.call(order.id))
        await ctx.execute_task(reserve, order.id, task_id=f"reserve:{order.id}")
        undo.append(refund.call(order.id))
        await ctx.execute_task(charge, order.id, order.cents, task_id=f"charge:{order.id}")
        ctx.publish("state", "paid")
        await ctx.sleep(order.grace)
        parcel = await ctx.execute_task(ship, order.id, task_id=f"ship:{order.id}")
    except (Exception, asyncio.CancelledError):
        ctx.publish("state", "being undone")
        for call in reversed(undo):
            await ctx.execute_task(call, task_id=f"{call.task.name}:{order.id}")
        ctx.publish("state", "undone")
        raise  # ends failed or cancelled, which is what happened
    ctx.publish("state", "shipped")
    return parcel


async def place(order: Order) -> semel.Handle[str]:
    """Called by the shop, as often as it likes. An order that was undone stays undone: a new try needs a new order."""
    return await app.start_workflow(place_order.call(order), workflow_id=f"order:{order.id}", reuse="reject")


async def paid(order: semel.Handle[str]) -> None:
    """Wait until an order is paid. One from an earlier run of this program may already be undone."""
    async with asyncio.timeout(20):
        while await order.published("state") not in ("paid", "undone"):
            await asyncio.sleep(0.02)


async def main() -> None:
    async with app, app.worker():
        good = await place(Order("o-1", 9_900, grace=0.1))
        print("o-1", await good.result("1m"))

        bad = await place(Order("o-2", 4_900, grace=0.1))
        try:
            await bad.result("1m")
        except semel.ExecutionFailed as failure:
            print("o-2", failure.error_message, await bad.published("state"))

        regretted = await place(Order("o-3", 2_900))
        await paid(regretted)
        await regretted.cancel()
        try:
            await regretted.result("1m")
        except semel.ExecutionCancelled:
            print("o-3", "cancelled", await regretted.published("state"))
    print("done outside by this run:")
    print(list(partners.done.values()))


if __name__ == "__main__":
    asyncio.run(main())
