"""What the program of `shop.py` goes through before it is recorded: all is left half way, so that it must go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest

import semel
from tests.stored import before, shop, wrong
from tests.world import ended, eventually, naps, waits

LEDGER = "create table stored_ledger (account varchar(40) not null, cents integer not null)"
"""A table of the application's own, for `ctx.transaction`."""
SERVED = ["default", "inspection"]
"""The recorder's workers leave the queue `bulk` alone: what is there was never begun."""

BOX = shop.Box(inside={"small": shop.Box(size=shop.Size.SMALL), "none": None})

Opens = Callable[[ModuleType], semel.App]


@asynccontextmanager
async def told(open_app: Opens, prepare: Callable[[], Awaitable[Any]]) -> AsyncIterator[semel.App]:
    """Bring everything to where it stops; in the block the last worker still holds a task, as if it had just died."""
    shop.RAN.clear()
    shop.MENDED.clear()
    app = open_app(shop)
    await app.migrate()
    await prepare()
    await earlier_deploys(open_app)
    if app.engine.capabilities.limits:
        app.configure_queue("bulk", concurrency=3, rate_limit="1000/sec", retention="20d")
    shop.HELD.add("pick")
    try:
        async with app.worker(queues=["default"], grace="0s"):
            await tasks(app)
            await waiting_tasks(app)
            await workflows(app)
            await workflows_that_turned(app)
            await entities(app)
            held = await app.enqueue(shop.pick, "o-1", task_id="pick:o-1")
            await eventually(lambda: stands(held, "running"))
            yield app
    finally:
        shop.HELD.clear()
        await app.close()


async def stands(handle: semel.Handle[Any], status: str) -> bool:
    """Is it there now?"""
    return bool(await handle.status() == status)


async def earlier_deploys(open_app: Opens) -> None:
    """What an earlier version began; one of them is parked by a deploy that does not fit."""
    old = open_app(before)
    async with old, old.worker(queues=SERVED):
        begun = [
            await old.start_workflow(before.inspect, workflow_id="inspect"),
            await old.start_workflow(before.gift, workflow_id="gift:before"),
            await old.start_workflow(before.label, workflow_id="label:before"),
        ]
        for handle, signal in zip(begun, ("go", "sent", "print"), strict=True):
            await waits(handle, signal)
    bad = open_app(wrong)
    async with bad, bad.worker(queues=["inspection"]):
        handle = await found(bad, "inspect", "workflow")
        await handle.signal("go", dedup_key="go:1")

        async def parked() -> bool:
            return (await handle.describe()).error is not None

        await eventually(parked)


async def found(app: semel.App, key: str, kind: str = "task") -> semel.Handle[Any]:
    """The newest execution under a key, which must be there."""
    handle = await app.find(key, kind=kind)
    assert handle is not None, key
    return handle


async def tasks(app: semel.App) -> None:
    """Tasks that have ended, each in another way, and keys that suppressed duplicates."""
    first = await app.enqueue(shop.charge, "o-1", task_id="charge:o-1")
    await first.result(timeout="60s")
    assert (await app.enqueue(shop.charge, "o-1", 100, task_id="charge:o-1")).duplicate
    with pytest.raises(semel.KeyConflict):
        await app.enqueue(shop.charge, "o-1", 200, task_id="charge:o-1")
    for _ in range(2):
        again = await app.enqueue(shop.charge, "o-2", task_id="charge:twice", reuse="always")
        await again.result(timeout="60s")
    await (await app.enqueue(shop.note, "without a key")).result(timeout="60s")
    await (await app.enqueue(shop.invoice, "o-1", task_id="invoice:o-1")).result(timeout="60s")
    assert (await app.enqueue(shop.invoice, "o-1", task_id="invoice:o-1")).duplicate
    assert await ended(await app.enqueue(shop.shred, "o-1", task_id="shred:o-1")) == "completed"
    measured = await app.enqueue(shop.measure, BOX, task_id="measure:done")
    assert await measured.result(timeout="60s") == [BOX]
    for key in ("decline:o-1", "decline:again"):
        failed = await app.enqueue(shop.decline, "o-1", task_id=key)
        assert await ended(failed) == "failed"
    assert await ended(await app.redrive(failed.id)) == "failed"
    assert await ended(await app.enqueue(shop.ask_too_much, "o-1", task_id="ask:o-1")) == "failed"
    assert await ended(await app.enqueue(shop.dawdle, task_id="dawdle")) == "timed_out"
    cancelled = await app.enqueue(shop.note, "never", task_id="note:cancelled", delay="1d")
    await cancelled.cancel()
    assert await ended(cancelled) == "cancelled"


async def waiting_tasks(app: semel.App) -> None:
    """Tasks that wait: for their time, for another attempt, for a worker of their queue, for those before them."""
    retried = await app.enqueue(shop.call_carrier, "o-1", task_id="call:o-1")

    async def failed_once() -> bool:
        execution = await retried.describe()
        return (execution.attempt, execution.status) == (1, "pending") and execution.run_at is not None

    await eventually(failed_once)
    await app.enqueue(shop.note, "tomorrow", task_id="note:tomorrow", delay="1d")
    await app.enqueue(shop.note, "without a key, later", delay="2d")
    await app.enqueue(shop.measure, BOX, 2, task_id="measure:later", delay="1h")
    await app.enqueue(shop.sort_mail, "last", task_id="sort:last")
    await app.enqueue(shop.sort_mail, "first", task_id="sort:first", priority=5)
    await app.enqueue(shop.sort_mail, "without a key")
    if app.engine.capabilities.limits:
        await app.enqueue_many([shop.bill.call(c, n) for n in (1, 2) for c in "ab"])
        await app.enqueue(shop.weigh, "parcel", task_id="weigh:parcel")


async def workflows(app: semel.App) -> None:
    """Workflows that sleep or wait, and one that is through."""
    done = await app.start_workflow(shop.process, "done", workflow_id="process:done")
    await done.signal("approved", True)
    await done.result(timeout="60s")
    assert (await app.start_workflow(shop.process, "done", workflow_id="process:done")).duplicate
    await naps(await app.start_workflow(shop.process, "sleeps", "1d", workflow_id="process:sleeps"))
    await waits(await app.start_workflow(shop.process, "waits", workflow_id="process:waits"), "approved")
    parent = await app.start_workflow(shop.family, workflow_id="family")
    await eventually(lambda: has_asked(parent, "charge", 1))
    await waits(parent)
    await published(await found(app, "parcel:awaited", "workflow"), "where", "depot")
    await waits(await found(app, "parcel:left", "workflow"), "moved")
    await naps(await app.start_workflow(shop.transfer, "acme", workflow_id="transfer:acme"))
    crowd = await app.start_workflow(shop.crowd, workflow_id="crowd")
    await eventually(lambda: has_ended(app, "note", "group 0", "group 1"))
    await waits(crowd)
    await waits(await app.start_workflow(shop.gift, workflow_id="gift:new"), "sent")
    await waits(await app.start_workflow(shop.label, workflow_id="label:new"), "print")
    await waits(await app.start_workflow(shop.warranty, workflow_id="warranty:waits"), "broken")
    assert await ended(await app.start_workflow(shop.warranty, False, workflow_id="warranty:failed")) == "failed"
    later = await app.start_workflow(shop.gift, workflow_id="gift:later", delay="1d")
    assert await later.status() == "pending"


async def has_asked(handle: semel.Handle[Any], name: str, times: int) -> bool:
    """Has its code asked for this so often?"""
    return [event.name for event in await handle.history() if event.what == "asked"].count(name) == times


async def has_ended(app: semel.App, name: str, *texts: str) -> bool:
    """Have these tasks come to their end?"""
    return all(f"note {text}" in shop.RAN for text in texts)


async def published(handle: semel.Handle[Any], name: str, value: object) -> None:
    """Wait until a workflow has published this."""

    async def has() -> bool:
        return bool(await handle.published(name) == value)

    await eventually(has)


async def workflows_that_turned(app: semel.App) -> None:
    """Workflows in another run, on another way, or on their way back."""
    rounds = await app.start_workflow(shop.rounds, workflow_id="rounds")
    for number in (2, 3, 1):
        await rounds.signal("add", number, dedup_key=f"add:{number}")
    await published(rounds, "total", 5)

    async def waits_for_the_second() -> bool:
        return [e.name for e in await rounds.history() if e.what == "began"] == ["run 2"] and await has_asked(
            rounds, "add", 2
        )

    await eventually(waits_for_the_second)
    await rounds.signal("add", 3, dedup_key="add:3")  # a duplicate, from the run before
    saga = await waits(await app.start_workflow(shop.saga, "o-1", workflow_id="saga:o-1"), "paid")
    await saga.cancel()
    await naps(saga)
    draft = await app.start_workflow(shop.draft, workflow_id="draft")
    await draft.signal("said", "one")
    await eventually(lambda: has_asked(draft, "said", 2))
    fresh = await draft.reset("colour")
    await eventually(lambda: has_asked(fresh, "said", 2))
    assert await ended(draft) == "cancelled"
    assert await ended(await app.start_workflow(shop.refused, workflow_id="refused")) == "failed"


async def entities(app: semel.App) -> None:
    """Entities at rest, in the middle of a message, ended, and with messages that nobody has read."""
    rest = app.entity(shop.Account, "rest")
    assert await rest.ask("add", 100, "salary", dedup_key="k1", timeout="60s") == 100
    assert await rest.ask("add", 100, "salary", dedup_key="k1", timeout="60s") == 100
    await rest.send("spend", 500, dedup_key="s1")
    await rest.send("add", 7, dedup_key="k1")  # refused: the key stands for another message
    with pytest.raises(semel.ExecutionFailed):
        await rest.ask("order", dedup_key="o1", timeout="60s")
    assert await rest.ask("add", 1, timeout="60s") == 101
    busy = app.entity(shop.Account, "busy")
    assert await busy.ask("add", 10, dedup_key="b1", timeout="60s") == 10
    await busy.send("audit", dedup_key="a1")
    await naps(await found(app, busy.key, "entity"))
    await busy.send("add", 20, dedup_key="b2")
    await busy.send("add", 30)
    closed = app.entity(shop.Account, "closed")
    await closed.ask("add", 5, dedup_key="c1", timeout="60s")
    assert await closed.ask("close", timeout="60s") == "closed"
    assert await ended(await found(app, closed.key, "entity")) == "completed"
    box = app.entity(shop.Mailbox, "box")
    await box.send("drop", "one", dedup_key="m1")
    await box.send("drop", "two")
