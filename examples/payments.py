"""A payment that is retried when a reply is lost, and made once.

    python examples/payments.py

The provider is a stand-in that behaves like a real one: some of its replies are lost, and it answers a second call
under the same idempotency key with the first charge. Everything is kept in payments.db: run the file twice, and the
second run charges nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from decimal import Decimal

from rich import print

import semel

app = semel.App("sqlite:///payments.db", namespace="payments", config=None)


@dataclass
class Order:
    """Arguments may be dataclasses: the task's annotation says how to decode them."""

    id: str
    customer: str
    amount: Decimal


@dataclass
class Receipt:
    order: str
    amount: Decimal
    charge: str


@dataclass
class Provider:
    """Stands in for the payment provider: `calls` is what reached it, `charges` what it did."""

    calls: int = 0
    charges: dict[str, str] = field(default_factory=dict)

    async def charge(self, amount: Decimal, key: str) -> str:
        self.calls += 1
        await asyncio.sleep(0.01)
        self.charges.setdefault(key, f"ch_{len(self.charges) + 1}: {amount} EUR")
        if self.calls % 2:
            raise ConnectionError("the provider's answer was lost")
        return self.charges[key]


provider = Provider()


@app.task(
    queue="payments",
    retry=semel.Retry(max_attempts=6, initial="50ms"),
    timeout="10s",
    dedup_window="365d",  # the same order is not charged again for a year ...
    retention="30d",  # ... and the receipt can be read for a month
    concurrency_key="customer:{order.customer}",  # one payment per customer at a time
)
async def charge(order: Order) -> Receipt:
    """Charge one order."""
    key = semel.effect_key("charge")
    made = await provider.charge(order.amount, key)
    return Receipt(order.id, order.amount, made)


async def pay(order: Order) -> semel.Handle[Receipt]:
    """Called by the shop, as often as it likes."""
    return await app.enqueue(charge.call(order), task_id=f"charge:{order.id}")


async def main() -> None:
    orders = [Order(f"o-{n}", customer, Decimal("19.90")) for n, customer in enumerate(("ada", "bob", "ada"), 1)]
    async with app, app.worker():
        requests = [pay(order) for order in orders for _ in range(5)]
        for handle in await asyncio.gather(*requests):
            receipt = await handle.result(timeout="1m")
            print(handle.key, "duplicate" if handle.duplicate else "ran", receipt.charge)
        print(str(await app.explain("charge:o-1")))
    print(f"15 requests, {provider.calls} calls to the provider, {len(provider.charges)} charges")


if __name__ == "__main__":
    asyncio.run(main())
