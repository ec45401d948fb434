"""What a type checker makes of Semel. Checked by test_typing.py; nothing here is run."""

from dataclasses import dataclass
from typing import Any, assert_type

import semel

app = semel.App("sqlite:///:memory:")


@dataclass
class Receipt:
    order: str
    cents: int


@app.task
async def charge(order: str, cents: int) -> Receipt:
    return Receipt(order, cents)


@app.task(queue="mail", retry=semel.Retry(max_attempts=5), timeout="30s")
def send(to: str, *, subject: str = "") -> None: ...


@app.task(name="totals")
async def total(*cents: int) -> dict[str, int]:
    return {"total": sum(cents)}


class Rewards:
    points: int = 0

    @semel.handler("add-points")
    async def add(self, ctx: object, points: int) -> int:
        return self.points + points

    @semel.query
    def status(self) -> dict[str, int]:
        return {"points": self.points}

    @semel.idle("365d")
    async def lapse(self, ctx: object) -> None: ...


async def tested() -> None:
    assert_type(await Rewards().add(None, 5), int)
    assert_type(Rewards().status(), dict[str, int])
    await Rewards().add(None, "5")  # type: ignore[arg-type]


@app.entity(window="1h")
class Cart:
    items: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, items: int) -> int:
        if items < 0:
            ctx.end()
        return self.items + items


async def reached() -> None:
    cart = app.entity(Cart, "c-1")
    assert_type(cart, semel.Ref[Cart])
    assert_type(await cart.send("add", 1, dedup_key="k"), None)
    assert_type(await cart.ask("add", 1, timeout="5s"), Any)
    assert_type(await cart.state(), Cart)
    assert_type((await cart.state()).items, int)
    assert_type(app.sync.entity(Cart, "c-1").state(), Cart)
    app.entity(Cart, 5)  # type: ignore[call-overload]
    await cart.send("add", dedup_key=5)  # type: ignore[arg-type]


async def asked() -> None:
    handle = await app.enqueue(charge.call("o-1", 9900), task_id="pay-1")
    assert_type(handle, semel.Handle[Receipt])
    assert_type(await handle.result(timeout="5s"), Receipt)
    assert_type(await app.enqueue(charge, "o-1", cents=9900), semel.Handle[Receipt])
    assert_type(await app.enqueue(send, "a@b.c"), semel.Handle[None])
    assert_type(await (await app.enqueue(total.call(1, 2))).result(), dict[str, int])
    assert_type(await handle.status(), semel.Status)
    assert_type(await app.find("k"), semel.Handle[Any] | None)


async def by_name() -> None:
    handle = await app.start_workflow("Theirs", {"a": 1}, 2, workflow_id="w", task_queue="q", reuse="always")
    assert_type(handle, semel.Handle[Any])
    assert_type(app.sync.start_workflow("Theirs", workflow_id="w", task_queue="q").result(), Any)
    await app.start_workflow("Theirs", workflow_id="w")  # type: ignore[call-overload]


async def called() -> None:
    """A plain call checks its arguments; what it returns depends on `async`, which a Task does not tell."""
    assert_type(charge("o-1", 1), Any)
    assert_type(send("a@b.c", subject="hi"), Any)


def scripts() -> None:
    handle = app.sync.enqueue(charge.call("o-1", 9900), task_id="pay-1")
    assert_type(handle.result(), Receipt)


async def refused() -> None:
    charge.call("o-1")  # type: ignore[call-arg]
    charge.call("o-1", "9900")  # type: ignore[arg-type]
    charge.call("o-1", 9900, currency="EUR")  # type: ignore[call-arg]
    send.call("a@b.c", "subject")  # type: ignore[call-arg]
    charge(1, 1)  # type: ignore[arg-type]
    await app.enqueue(charge, "o-1", 1, reuse="sometimes")  # type: ignore[call-overload]
    await app.enqueue(charge, "o-1", 1, on_duplicate="ignore")  # type: ignore[call-overload]
    await app.enqueue(charge.call("o-1", 1), "more")  # type: ignore[call-overload]
    await app.enqueue("charge")  # type: ignore[call-overload]
    app.task(retry="often")  # type: ignore[call-overload]

    @semel.handler  # type: ignore[type-var]
    def not_async(self: object, ctx: object) -> None: ...
