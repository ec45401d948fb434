"""People's code for the fault tests on Temporal: a module as they write it, which the sandbox loads afresh.

Where it runs comes from the environment (SEMEL_URL, SEMEL_RECORDS), and so does the ledger of its effects.
"""

from __future__ import annotations

import asyncio
import os

import semel
from tests.faults.ledger import Ledger

app = semel.App(config=None)
PATIENT = semel.Retry(max_attempts=1000, initial="10ms", maximum="100ms")


def effect() -> None:
    """Something that happens outside, and is on disk before it counts."""
    Ledger(os.environ["KITCHEN_LEDGER"]).record_here()


@app.task(retry=PATIENT)
async def cook(order: str, seconds: float = 0.0) -> str:
    """The effect first, then time in which its worker may die; what is run again takes no time."""
    again = semel.current().effect_key("effect") in Ledger(os.environ["KITCHEN_LEDGER"]).times()
    effect()
    await asyncio.sleep(0.0 if again else seconds)
    return order


@app.task(retry=PATIENT)
def chop(order: str) -> str:
    effect()
    return order


@app.task(retry=2)
async def poison() -> None:
    effect()
    os._exit(13)


@app.workflow
async def dessert(ctx: semel.Context, order: str) -> str:
    return await ctx.execute_task(chop, order)


@app.workflow
async def meal(ctx: semel.Context, order: str, seconds: float = 0.0) -> list[str]:
    """A step, tasks with and without a key, a timer, a child, a signal, and a step again."""
    first = await ctx.step(note, f"{order} ordered")
    cooked = await ctx.execute_task(cook, order, seconds)
    await ctx.sleep("200ms")
    shared = await ctx.execute_task(chop, order, task_id=f"side-{order}")
    sweet = await ctx.execute_workflow(dessert, order, workflow_id=f"{order}-dessert")
    said = await ctx.wait_signal("served")
    return [first, cooked, shared, sweet, said, await ctx.step(note, f"{order} paid")]


def note(what: str) -> str:
    effect()
    return what


def jam() -> None:
    """Takes the process along, twice; after that somebody has repaired it."""
    effect()
    ledger = os.open(os.environ["KITCHEN_LEDGER"], os.O_RDONLY)
    if os.read(ledger, 100_000).count(b"\n") <= 2:
        os._exit(13)


@app.entity
class Till:
    """Counts what it is told."""

    total: int = 0

    @semel.handler
    async def add(self, ctx: semel.EntityContext, cents: int) -> int:
        self.total += cents
        return self.total

    @semel.handler
    async def add_with_receipt(self, ctx: semel.EntityContext, cents: int) -> int:
        await ctx.step(note, f"receipt of {cents}")
        self.total += cents
        return self.total

    @semel.handler
    async def slam(self, ctx: semel.EntityContext) -> int:
        self.total += 1000
        await ctx.step(jam)
        return self.total
