"""The program whose executions are kept in the numbered folders: recorded once, gone on with by every later tree.

Change nothing here that a kept journal or history would notice; what is new gets a new name. `before.py` and `wrong.py`
are the same program as other deploys had it.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import semel

app = semel.App("sqlite:///:memory:", config=None)

RAN: list[str] = []
"""Every effect of a task, step or handler in this process, in order."""
HELD: set[str] = set()
"""Tasks that do not come to their end: the recorder stops while they run."""
MENDED: set[str] = set()
"""What fails until it stands here."""
QUICKLY = semel.Retry(max_attempts=3, initial="10ms", jitter=0.0)


def did(what: str) -> str:
    """Note an effect."""
    RAN.append(what)
    return what


# -- tasks


NIL = UUID(int=0)


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Box:
    """A value of every kind that is stored in a form of its own."""

    took: timedelta = timedelta(minutes=90)
    weight: Decimal = Decimal("1.50")
    id: UUID = NIL
    label: bytes = b"\x00\xff"
    size: Size = Size.LARGE
    tags: frozenset[str] = frozenset({"fragile", "ä"})
    corner: tuple[int, float] = (3, 0.5)
    inside: dict[str, Box | None] = field(default_factory=dict)


@app.task
async def measure(box: Box, times: int = 1) -> list[Box]:
    did(f"measure {times}")
    return [box] * times


@app.task
async def charge(order: str, cents: int = 100) -> dict[str, Any]:
    did(f"charge {order}")
    return {"order": order, "cents": cents}


@app.task
def note(text: str) -> str:
    return did(f"note {text}")


@app.task(dedup_window="365d")
async def invoice(order: str) -> str:
    """Its key is remembered for longer than a cluster remembers: the records database has it there."""
    return did(f"invoice {order}")


@app.task(retention="0s", dedup_window="30d")
async def shred(order: str) -> str:
    """Nothing but its key is kept."""
    return did(f"shred {order}")


@app.task(retry=semel.Retry(max_attempts=3, initial="2h", jitter=0.0))
async def call_carrier(order: str) -> int:
    did(f"call {order}")
    if semel.current().attempt == 1:
        raise ConnectionError("the line is busy")
    return semel.current().attempt


@app.task(retry=1)
async def decline(order: str) -> str:
    if "decline" not in MENDED:
        raise ValueError(f"declined {order}")
    return did(f"accept {order}")


@app.task(retry=1)
async def ask_too_much(order: str) -> str:
    """Fails with an error of Semel's own."""
    raise semel.InvalidValue(f"too much for {order}")


@app.task(retry=1, timeout="50ms")
async def dawdle() -> None:
    await asyncio.sleep(30)


@app.task
async def pick(order: str) -> str:
    did(f"pick {order}")
    if "pick" in HELD:
        await asyncio.Event().wait()
    return f"picked {order}"


@app.task(queue="bulk")
async def sort_mail(sack: str) -> str:
    return did(f"sort {sack}")


@app.task(queue="bulk", concurrency_key="customer:{customer}")
async def bill(customer: str, number: int) -> str:
    """Journals only: a cluster has no such limits."""
    return did(f"bill {customer}{number}")


@app.task(queue="bulk", rate_limit="1000/sec")
async def weigh(parcel: str) -> str:
    """Journals only: a cluster has no such limits."""
    return did(f"weigh {parcel}")


# -- workflows


def pack(order: str) -> str:
    if semel.current().attempt == 1:
        raise ConnectionError("no tape")
    return did(f"pack {order}")


def ship(order: str) -> str:
    return did(f"ship {order}")


@app.workflow(timeout="20d")
async def process(ctx: semel.Context, order: str, nap: str = "10ms") -> dict[str, Any]:
    """A step that is tried again, tasks with and without a key, chance, a timer, a signal."""
    ctx.search_attributes["order"] = order
    packed = await ctx.step(pack, order, retry=QUICKLY)
    paid = await ctx.execute_task(charge, order, 900, task_id=f"payment:{order}")
    noted = await ctx.execute_task(note, f"of {order}")
    dice = [str(ctx.uuid4()), ctx.random.randrange(1_000_000)]
    ctx.publish("dice", dice)
    await ctx.sleep(nap)
    ctx.publish("stage", "waits for approval")
    approved = await ctx.wait_signal("approved", timeout="5d", type=bool)
    shipped = await ctx.step(ship, order)
    return {"did": [packed, paid["cents"], noted, shipped], "approved": approved, "dice": dice}


@app.workflow
async def parcel(ctx: semel.Context, name: str) -> str:
    where = await ctx.wait_signal("moved")
    while where != "home":
        ctx.publish("where", where)
        where = await ctx.wait_signal("moved")
    return f"{name} is home"


@app.workflow
async def family(ctx: semel.Context) -> list[str]:
    """Two children, one of whom it waits for; what is enqueued on the way; a task that fails and is caught."""
    await ctx.enqueue(note, "of a family")
    await ctx.start_workflow(parcel, "left alone", workflow_id="parcel:left")
    child = await ctx.start_workflow(parcel, "awaited", workflow_id="parcel:awaited", on_parent_close="cancel")
    await child.signal("moved", "depot")
    try:
        await ctx.execute_task(decline, "in a family", task_id="decline:family")
        caught = "nothing"
    except semel.ExecutionFailed as error:
        caught = error.error_type
    try:
        await ctx.execute_task(charge, "o-1", 1, task_id="charge:o-1")
    except semel.KeyConflict:
        caught += " and a conflict"
    return [caught, await child.result()]


def book(tx: Any, account: str, cents: int) -> int:
    tx.execute("insert into stored_ledger (account, cents) values ($1, $2)", account, cents)
    return int(tx.execute("select sum(cents) from stored_ledger where account = $1", account)[0][0])


@app.workflow
async def transfer(ctx: semel.Context, account: str) -> list[int]:
    first = await ctx.transaction(book, account, 30)
    await ctx.sleep("1d")
    return [first, await ctx.transaction(book, account, 12, name="book-the-rest")]


@app.workflow
async def rounds(ctx: semel.Context, total: int = 0) -> int:
    total += await ctx.wait_signal("add", type=int)
    total += await ctx.wait_signal("add", type=int)
    ctx.publish("total", total)
    if total < 10:
        ctx.continue_as_new(total)
    return total


@app.workflow
async def crowd(ctx: semel.Context) -> list[Any]:
    """A group whose last task waits in a queue, what comes first, and a race that time wins."""
    quick = await asyncio.gather(ctx.execute_task(note, "one"), ctx.step(did, "two", name="did"), ctx.sleep("10ms"))
    async with asyncio.TaskGroup() as group:
        done = [group.create_task(ctx.execute_task(note, f"group {n}")) for n in range(2)]
        done.append(group.create_task(ctx.execute_task(sort_mail, "group", task_id="sort:group")))
    try:
        async with asyncio.timeout(3 * 86_400):
            await ctx.wait_signal("never")
    except TimeoutError:
        did_late = True
    return [quick[:2], [one.result() for one in done], did_late]


@app.workflow
async def saga(ctx: semel.Context, order: str) -> None:
    """Cancelled in its wait; the compensation itself takes an hour."""
    await ctx.step(did, f"reserve {order}", name="reserve")
    try:
        await ctx.wait_signal("paid")
    except asyncio.CancelledError:
        await ctx.step(did, f"release {order}", name="release")
        await ctx.sleep("1h")
        await ctx.step(did, f"apologise {order}", name="apologise")
        raise


@app.workflow
async def draft(ctx: semel.Context) -> list[str]:
    """Is reset to its second step by the recorder."""
    await ctx.step(did, "sketch", name="sketch")
    await ctx.step(did, "colour", name="colour")
    return [await ctx.wait_signal("said"), await ctx.wait_signal("said")]


@app.workflow(queue="inspection")
async def inspect(ctx: semel.Context) -> str:
    """Parked by a deploy that did something else (`wrong.py`)."""
    await ctx.step(did, "look", name="look")
    await ctx.wait_signal("go")
    return await ctx.step(did, "sign", name="sign")


@app.workflow
async def gift(ctx: semel.Context) -> list[str]:
    """One has begun before there was any wrapping (`before.py`)."""
    done = []
    if ctx.patched("wrapping"):
        done.append(await ctx.step(did, "wrap", name="wrap"))
    done.append(await ctx.step(did, "write a card", name="card"))
    return [*done, await ctx.wait_signal("sent")]


@app.workflow(name="label", version=1)
async def label_by_hand(ctx: semel.Context) -> str:
    """Began with the first version (`before.py`), and ends with it."""
    said = await ctx.wait_signal("print")
    return await ctx.step(did, f"write {said}", name="write")


@app.workflow(name="label", version=2)
async def label(ctx: semel.Context) -> str:
    said = await ctx.wait_signal("print")
    return await ctx.step(did, f"print {said}", name="print")


@app.workflow
async def refused(ctx: semel.Context) -> None:
    """Fails with an error of Semel's own, which its code does not catch."""
    await ctx.execute_task(ask_too_much, "a workflow")


@app.workflow(dedup_window="365d")
async def warranty(ctx: semel.Context, works: bool = True) -> str:
    """Its key is remembered for longer than a cluster remembers, however it ends."""
    if not works:
        await ctx.execute_task(ask_too_much, "a warranty")
    return await ctx.wait_signal("broken", type=str)


# -- entities


@app.entity(window="30d")
class Account:
    cents: int = 0
    lines: list[str] = field(default_factory=list)

    @semel.handler
    async def add(self, ctx: semel.EntityContext, cents: int, why: str = "") -> int:
        did(f"add {cents} to {ctx.entity_id}")
        self.cents += cents
        self.lines.append(why)
        return self.cents

    @semel.handler
    async def spend(self, ctx: semel.EntityContext, cents: int) -> int:
        if "spend" not in MENDED:
            raise ValueError(f"{cents} is too much")
        self.cents -= cents
        return self.cents

    @semel.handler
    async def order(self, ctx: semel.EntityContext) -> None:
        """Fails with an error of Semel's own."""
        await ctx.execute_task(ask_too_much, "an entity")

    @semel.handler
    async def audit(self, ctx: semel.EntityContext) -> list[int]:
        """Waits in the middle: messages behind it wait too."""
        before = self.cents
        await ctx.step(did, f"audit {ctx.entity_id}", name="audit")
        await ctx.sleep("1h")
        self.cents += 1
        return [before, self.cents]

    @semel.handler
    async def close(self, ctx: semel.EntityContext) -> str:
        ctx.end()
        return "closed"

    @semel.query
    def balance(self) -> dict[str, Any]:
        return {"cents": self.cents, "lines": self.lines}

    @semel.idle("90d")
    async def lapse(self, ctx: semel.EntityContext) -> None:
        did(f"lapse {ctx.entity_id}")
        self.cents = 0


@app.entity(queue="bulk")
class Mailbox:
    """Has messages and was never begun: nobody serves its queue while it is recorded."""

    letters: list[str] = field(default_factory=list)

    @semel.handler
    async def drop(self, ctx: semel.EntityContext, letter: str) -> int:
        did(f"drop {letter}")
        self.letters.append(letter)
        return len(self.letters)
